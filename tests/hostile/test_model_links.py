"""Who made a checkpoint, or can write into a shared cache of the Hub's library, puts links into it that lead elsewhere:
nothing that they lead to is read as a model's, kept, or given to members."""

import os
from pathlib import Path

import pytest

from kafila_sidecar.errors import Refused
from kafila_sidecar.weights.providers.folder import folder_source
from kafila_sidecar.weights.providers.hub_cache import HubCache
from tests.sidecar.conftest import tensors
from tests.support.checkpoint import write_json, write_weights

REPO = "kafila/model"
COMMIT = "0" * 40
WEIGHTS = "model-00001-of-00001.safetensors"
TEMPLATE = "additional_chat_templates/tool_use.jinja"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "token"
    path.parent.mkdir()
    path.write_text("a secret")
    return path


def fill(folder: Path) -> Path:
    """A checkpoint."""
    folder.mkdir(parents=True)
    config = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 8, "num_attention_heads": 4}
    write_json(folder / "config.json", config | {"num_key_value_heads": 2, "tie_word_embeddings": True})
    write_json(folder / "tokenizer.json", {"model": {}})
    write_json(folder / "tokenizer_config.json", {"eos_token": "</s>"})
    write_weights(folder, tensors(True, None, 8), 1)
    return folder


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A snapshot as the Hub's library lays it down: links into the repository's blobs."""
    repo = tmp_path / "cache" / "models--kafila--model"
    blobs = fill(repo / "blobs")
    folder = repo / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    for path in blobs.iterdir():
        (folder / path.name).symlink_to(os.path.relpath(path, folder))
    return folder


@pytest.mark.parametrize("name", ["tokenizer_config.json", "chat_template.jinja", TEMPLATE, "generation_config.json"])
@pytest.mark.parametrize("through", ["a link", "a link to a link", "a linked folder"])
def test_folder_when_a_small_file_leads_out_of_it_then_refused_by_name_and_nothing_is_given_away(
    tmp_path: Path, secret: Path, name: str, through: str
) -> None:
    folder = fill(tmp_path / "models" / "evil")
    (folder / name).unlink(missing_ok=True)
    target = secret
    if through == "a link to a link":
        target = folder / "x"
        target.symlink_to(secret)
    if through == "a linked folder" and name == TEMPLATE:
        (folder / TEMPLATE).parent.symlink_to(secret.parent)
        secret.rename(secret.parent / Path(TEMPLATE).name)
    else:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(target)
    with pytest.raises(Refused, match=Path(name).name) as refused:
        folder_source(str(folder))
    assert "a secret" not in str(refused.value)


def test_folder_when_its_links_stay_inside_or_it_is_a_link_itself_then_it_is_read(tmp_path: Path) -> None:
    folder = fill(tmp_path / "real")
    (folder / "tokenizer.json").rename(folder / "kept")
    (folder / "tokenizer.json").symlink_to("kept")
    (tmp_path / "link").symlink_to(folder)
    for path in (folder, tmp_path / "link"):
        assert "tokenizer.json" in {file.name for file in folder_source(str(path)).description.files}  # type: ignore[union-attr]


def test_snapshot_when_used_as_a_folder_then_its_blobs_are_its_own_and_other_places_are_not(
    snapshot: Path, secret: Path
) -> None:
    assert folder_source(str(snapshot)).whole.keys() == {WEIGHTS}
    (snapshot / "chat_template.jinja").symlink_to(secret)
    with pytest.raises(Refused, match="chat_template"):
        folder_source(str(snapshot))


def test_hub_cache_when_a_link_leads_out_of_its_repository_then_the_file_counts_as_absent(
    tmp_path: Path, snapshot: Path, secret: Path
) -> None:
    cache = HubCache(tmp_path / "cache")
    whole = cache.files(REPO, COMMIT)
    assert {"config.json", "tokenizer.json", WEIGHTS} <= set(whole)
    for name in ("config.json", WEIGHTS):
        (snapshot / name).unlink()
        (snapshot / name).symlink_to(secret)
    assert set(cache.files(REPO, COMMIT)) == set(whole) - {"config.json", WEIGHTS}


@pytest.mark.parametrize("said", ["../../../../home", "x" * 10_000_000, "", "0" * 39, "main", "\xff\xfe"])
def test_hub_cache_when_a_ref_names_no_commit_then_it_names_nothing(tmp_path: Path, snapshot: Path, said: str) -> None:
    ref = snapshot.parent.parent / "refs" / "main"
    ref.parent.mkdir()
    ref.write_text(said)
    assert HubCache(tmp_path / "cache").revision(REPO) is None
    ref.write_text(f"{COMMIT}\n")
    assert HubCache(tmp_path / "cache").revision(REPO) == COMMIT
