"""From a model's name to its revision and small files: the Hub, its library's cache, and folders."""

import asyncio
import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import snapshot_download

from kafila_sidecar.errors import Denied, InvalidInput, NotFound, Refused, TimedOut, Unavailable
from kafila_sidecar.weights.checkpoint import Checkpoint, open_checkpoint
from kafila_sidecar.weights.providers.hub import Hub
from kafila_sidecar.weights.providers.hub_cache import HubCache
from kafila_sidecar.weights.providers.resolve import listing_of, resolve
from kafila_sidecar.weights.providers.source import Source
from tests.support.model_host import Faults, ModelHost

Make = Callable[..., Path]
REPO = "kafila/model"
NOWHERE = "http://127.0.0.1:9"


async def resolved(host: ModelHost, cache: Path, repo: str = REPO, token: str | None = None) -> Source:
    return await resolve(repo, hub=Hub(endpoint=host.endpoint, token=token, retry_wait_s=0.001), cache=cache)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def everything(checkpoint: Checkpoint) -> dict[Path, frozenset[str]]:
    names = checkpoint.shard(start=0, end=4, head=True)
    await checkpoint.fetch(names)
    return checkpoint.files_for(names)


async def test_small_files_lie_under_repository_and_commit_and_code_is_left_behind(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    folder = checkpoint_folder()
    with ModelHost({REPO: folder}) as host:
        source = await resolved(host, tmp_path)
        assert source.revision == host.revisions[REPO]
        assert source.small_files == tmp_path / REPO / source.revision
        small = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json"}
        assert names_in(source.small_files) == small | {"source.json"}
        assert source.config == json.loads((folder / "config.json").read_text())
        assert source.small_bytes == host.sent_bytes() == sum((folder / name).stat().st_size for name in small)
        assert [file.name for file in source.weight_files] == sorted(path.name for path in folder.glob("*-of-*"))


async def test_revision_that_was_resolved_before_needs_no_network(checkpoint_folder: Make, tmp_path: Path) -> None:
    with ModelHost({REPO: checkpoint_folder()}) as host:
        before = await open_checkpoint(REPO, hub=Hub(endpoint=host.endpoint), cache=tmp_path)
        files = await everything(before)
    after = await open_checkpoint(REPO, hub=Hub(endpoint=NOWHERE), cache=tmp_path, revision=before.revision)
    assert await everything(after) == files
    assert (after.small_bytes, after.header_bytes, after.fetched_bytes) == (0, 0, 0)


async def test_library_cache_is_used_in_place_even_without_network(checkpoint_folder: Make, tmp_path: Path) -> None:
    folder = checkpoint_folder()
    shelf, own = tmp_path / "hub", tmp_path / "own"
    with ModelHost({REPO: folder}) as host:
        revision = host.revisions[REPO]
        await asyncio.to_thread(snapshot_download, REPO, endpoint=host.endpoint, cache_dir=shelf, token=False)
        sent = host.sent_bytes()
        online = await open_checkpoint(REPO, hub=Hub(endpoint=host.endpoint), cache=own, hub_cache=shelf)
        await everything(online)
        assert host.sent_bytes() == sent
    shutil.rmtree(own)
    offline = await open_checkpoint(REPO, hub=Hub(endpoint=NOWHERE), cache=own, hub_cache=shelf)
    assert offline.revision == revision
    for path, names in (await everything(offline)).items():
        assert path.is_relative_to(shelf)
        assert names


async def test_gated_model_says_what_to_do_without_the_right_token(checkpoint_folder: Make, tmp_path: Path) -> None:
    with ModelHost({REPO: checkpoint_folder()}, gated={REPO: "secret"}) as host:
        for token in (None, "wrong"):
            with pytest.raises(Denied, match=r"is gated at .*: accept its terms on its page there, then set HF_TOKEN"):
                await resolved(host, tmp_path, token=token)
        assert (await resolved(host, tmp_path, token="secret")).model == REPO


@pytest.mark.parametrize("name", ["kafila/nothing", "nothing"])
async def test_unknown_model_is_not_found(checkpoint_folder: Make, tmp_path: Path, name: str) -> None:
    with ModelHost({REPO: checkpoint_folder()}) as host:
        with pytest.raises(NotFound, match=f"{name}: check the name"):
            await resolved(host, tmp_path, name)
        with pytest.raises((NotFound, Denied)):
            await resolved(host, tmp_path, name, token="some")


@pytest.mark.parametrize("name", ["", "../x", "a/b/c", "a b", "a/..", "-a/b", "relative/../x", "a/b?c", "x" * 300])
async def test_malformed_name_is_invalid(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput):
        await resolve(name, hub=Hub(endpoint=NOWHERE), cache=tmp_path)


@pytest.mark.parametrize("revision", ["../x", "main", "0" * 39, ""])
async def test_malformed_revision_is_invalid(tmp_path: Path, revision: str) -> None:
    with pytest.raises(InvalidInput):
        await resolve(REPO, hub=Hub(endpoint=NOWHERE), cache=tmp_path, revision=revision)


async def test_unreachable_host_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=f"{NOWHERE} can't be reached for the model {REPO}"):
        await resolve(REPO, hub=Hub(endpoint=NOWHERE, retry_wait_s=0.001), cache=tmp_path)


async def test_host_that_falls_silent_is_timed_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TimedOut, match="took more than"):
            await resolve(REPO, hub=Hub(endpoint=endpoint, small_file_s=0.2), cache=tmp_path)


async def test_host_that_is_no_hub_is_told_in_words(checkpoint_folder: Make, tmp_path: Path) -> None:
    folder = checkpoint_folder()
    with ModelHost({"api/models/kafila/model/revision/main/resolve/main": folder, REPO: folder}) as host:
        wrong = f"{host.endpoint}/kafila/model/resolve/main/config.json?"
        with pytest.raises(Unavailable, match="check HF_ENDPOINT"):
            await resolve(REPO, hub=Hub(endpoint=wrong), cache=tmp_path)


async def test_passing_trouble_with_a_small_file_is_survived(checkpoint_folder: Make, tmp_path: Path) -> None:
    with ModelHost({REPO: checkpoint_folder()}, faults=Faults(only="tokenizer", status=503, times=2)) as host:
        assert (await resolved(host, tmp_path)).small_bytes > 0


MODELOPT: dict[str, tuple[Any, str]] = {
    "FP8": ({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, r"modelopt \(FP8\)"),
    "mixed": ({"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": {}}}, "MIXED_PRECISION"),
    "a foreign group": ({"quantization": {"quant_algo": "NVFP4", "group_size": 32}}, r"modelopt \(NVFP4\)"),
    "an unread setting": ({"quantization": {"quant_algo": "NVFP4", "pre_quant_scale": True}}, "pre_quant_scale"),
    "no settings": ({"producer": {"name": "modelopt"}}, r"hf_quant_config\.json says no quantization"),
    "settings that are none": ({"quantization": "FP8"}, r"hf_quant_config\.json says no quantization"),
    "unread words": ({"quantization": {"quant_algo": None}, "sparsity": 1}, r"hf_quant_config\.json says sparsity"),
    "another method": ({"quant_method": "gptq", "quantization": {"bits": 4}}, "gptq"),
    "code": ({"quantization": {"quant_algo": None}, "custom_pipelines": {"x": "y.Z"}}, "custom_pipelines"),
}
"""What may stand in a file of its own, and would be taken for plain weights by whoever doesn't read it."""
REFUSED: dict[str, tuple[str, Any, type[Exception], str]] = {
    "code of its own": ("config.json", {"trust_remote_code": True}, Refused, "trust_remote_code"),
    "code deeper": ("config.json", {"text_config": [{"custom_pipelines": {"x": "m.X"}}]}, Refused, "custom_pipelines"),
    "code of mlx-lm's kind": ("config.json", {"model_file": "modeling.py"}, Refused, "model_file"),
    "tokenizer code": ("tokenizer_config.json", {"model_file": "t.py"}, Refused, "model_file"),
    "no architecture": ("config.json", {"model_type": None}, Refused, "model_type"),
    "architecture that is a path": ("config.json", {"model_type": "../x"}, Refused, "model_type"),
    "foreign quantisation": ("config.json", {"quantization_config": {"quant_method": "gptq"}}, Refused, "gptq"),
    **{
        f"modelopt in a file of its own, {name}": ("hf_quant_config.json", told, Refused, sentence)
        for name, (told, sentence) in MODELOPT.items()
    },
    "improper file": ("model.safetensors.index.json", {"weight_map": {"a": "../x.safetensors"}}, Refused, "improper"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_unsuitable_checkpoint_is_refused_before_any_weight(
    checkpoint_folder: Make, tmp_path: Path, name: str
) -> None:
    file, change, error, sentence = REFUSED[name]
    folder = checkpoint_folder()
    content = (json.loads((folder / file).read_text()) if (folder / file).is_file() else {}) | change
    (folder / file).write_text(json.dumps(content))
    with ModelHost({REPO: folder}) as host:
        with pytest.raises(error, match=sentence):
            await resolved(host, tmp_path)
        assert host.sent_bytes(".safetensors") == 0
    with pytest.raises(error, match=sentence):
        await resolve(str(folder), hub=Hub(endpoint=NOWHERE), cache=tmp_path)


@pytest.mark.parametrize("content", ["[]", "{", "[" * 100_000])
async def test_unreadable_configuration_is_refused(checkpoint_folder: Make, tmp_path: Path, content: str) -> None:
    folder = checkpoint_folder()
    (folder / "config.json").write_text(content)
    with pytest.raises(Refused, match=r"config\.json that is no JSON object"):
        await resolve(str(folder), hub=Hub(endpoint=NOWHERE), cache=tmp_path)


async def test_local_folder_is_used_in_place_without_network(checkpoint_folder: Make, tmp_path: Path) -> None:
    folder = checkpoint_folder(tied=False)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    checkpoint = await open_checkpoint(str(folder), hub=Hub(endpoint=NOWHERE), cache=tmp_path)
    files = await everything(checkpoint)
    assert {path.parent for path in files} == {folder}
    assert checkpoint.fetched_bytes == 0
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert not names_in(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.model", "merges.txt", "config.json", "model-00001-of-00003.safetensors"])
async def test_local_folder_with_a_link_that_leads_out_of_it_is_refused(
    checkpoint_folder: Make, tmp_path: Path, name: str
) -> None:
    folder, secret = checkpoint_folder(), tmp_path / "secret"
    secret.write_bytes((folder / name).read_bytes() if (folder / name).exists() else b"secret")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    with pytest.raises(Refused, match=f"{name} in .* leads out of that folder"):
        await resolve(str(folder), hub=Hub(endpoint=NOWHERE), cache=tmp_path)


async def test_snapshot_of_the_librarys_cache_is_a_folder_too_but_for_links_out_of_it(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    shelf = tmp_path / "hub"
    with ModelHost({REPO: checkpoint_folder()}) as host:
        await asyncio.to_thread(snapshot_download, REPO, endpoint=host.endpoint, cache_dir=shelf, token=False)
    snapshot = shelf / "models--kafila--model" / "snapshots" / host.revisions[REPO]
    assert (snapshot / "config.json").is_symlink()
    assert (await resolve(str(snapshot), hub=Hub(endpoint=NOWHERE), cache=tmp_path)).is_local
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (snapshot / "merges.txt").symlink_to(secret)
    assert "merges.txt" not in HubCache(shelf).files(REPO, host.revisions[REPO])
    with pytest.raises(Refused, match="leads out"):
        await resolve(str(snapshot), hub=Hub(endpoint=NOWHERE), cache=tmp_path)


async def test_local_folder_that_differs_from_the_sessions_is_refused(checkpoint_folder: Make, tmp_path: Path) -> None:
    ours, theirs = checkpoint_folder(), checkpoint_folder(rope_theta=5.0)
    same = await resolve(str(ours), hub=Hub(endpoint=NOWHERE), cache=tmp_path)
    other = await resolve(str(theirs), hub=Hub(endpoint=NOWHERE), cache=tmp_path)
    assert same.revision != other.revision
    await resolve(str(ours), hub=Hub(endpoint=NOWHERE), cache=tmp_path, revision=same.revision)
    with pytest.raises(Refused, match="is not the one of the session"):
        await resolve(str(ours), hub=Hub(endpoint=NOWHERE), cache=tmp_path, revision=other.revision)


async def test_local_folder_that_is_missing_or_incomplete_is_not_found(checkpoint_folder: Make, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no folder"):
        await resolve(str(tmp_path / "none"), hub=Hub(endpoint=NOWHERE), cache=tmp_path)
    folder = checkpoint_folder()
    next(iter(folder.glob("*-of-*"))).unlink()
    with pytest.raises(NotFound, match="which its index lists"):
        await resolve(str(folder), hub=Hub(endpoint=NOWHERE), cache=tmp_path)


@pytest.mark.parametrize("change", ["other tensors", "another dtype", "no file of this format", "gone"])
async def test_local_folder_when_it_changes_after_it_was_opened_then_refused_before_loading(
    checkpoint_folder: Make, tmp_path: Path, change: str
) -> None:
    folder, other = checkpoint_folder(files=1), checkpoint_folder(files=1, width=16)
    checkpoint = await open_checkpoint(str(folder), hub=Hub(endpoint=NOWHERE), cache=tmp_path)
    files = await everything(checkpoint)
    (path,) = files
    match change:
        case "other tensors":
            path.write_bytes(next(other.glob(f"*{path.suffix}")).read_bytes())
        case "another dtype":
            path.write_bytes(path.read_bytes().replace(b'"BF16"', b'"F16" '))
        case "no file of this format":
            path.write_bytes(b"\xff" * 100)
        case _:
            path.unlink()
    with pytest.raises(Refused, match=path.name):
        checkpoint.files_for(next(iter(files.values())))


def test_further_templates_when_listed_then_taken_and_nothing_else_in_folders(tmp_path: Path) -> None:
    template = "additional_chat_templates/tool_use.jinja"
    listed = ["config.json", template, "additional_chat_templates/x.py", "onnx/config.json", "../config.json"]
    info = {"sha": "0" * 40, "siblings": [{"rfilename": name, "size": 7} for name in listed]}
    assert set(listing_of(info).sizes) == {"config.json", template}
    snapshot = tmp_path / "models--kafila--model" / "snapshots" / ("0" * 40)
    for name in listed[:4]:
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).write_text("{}")
    assert set(HubCache(tmp_path).files(REPO, "0" * 40)) == {"config.json", template}
