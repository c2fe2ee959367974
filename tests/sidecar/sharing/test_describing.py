"""A folder that only its host has: described, checked, laid down and fetched from there; over real links."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafila_sidecar.errors import Refused, Unavailable
from kafila_sidecar.sharing.describing import take_down
from kafila_sidecar.weights.checkpoint import open_checkpoint, open_source
from kafila_sidecar.weights.fetching.transfer import Patience
from kafila_sidecar.weights.format.description import SmallFile, WeightHead, described
from kafila_sidecar.weights.providers.folder import (
    described_source,
    folder_name,
    folder_source,
    read_description,
    shelf,
)
from kafila_sidecar.weights.providers.hub import Hub
from tests.sidecar.sharing.lab import LabMember, link, true_to

Make = Callable[..., Path]
NOWHERE = Hub(endpoint="http://127.0.0.1:9")


@asynccontextmanager
async def host_and_guest(folder: Path, below: Path) -> AsyncIterator[tuple[LabMember, LabMember]]:
    """Both know the folder's checkpoint at first; the guest is to forget it."""
    async with AsyncExitStack() as stack:
        members: list[Any] = []
        made = []
        for place, name in enumerate(("ada", "bob")):
            checkpoint = await open_checkpoint(str(folder), hub=NOWHERE, cache=below / name)
            made.append(LabMember(name, place, checkpoint, members))
            stack.push_async_callback(made[-1].endpoint.close)
        await link(stack, *made)
        yield made[0], made[1]


async def test_folder_when_only_the_host_has_it_then_the_guest_gets_all_of_it_over_the_link(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    folder = checkpoint_folder(width=32)
    async with host_and_guest(folder, tmp_path) as (ada, bob):
        revision = ada.checkpoint.revision
        place = shelf(tmp_path / "bob", "tiny", revision)
        assert described_source(tmp_path / "bob", "tiny", revision) is None
        await take_down(bob.standing.to("ada"), revision=revision, folder=place)
        source = described_source(tmp_path / "bob", "tiny", revision)
        assert source is not None
        bob.checkpoint = await open_source(source, patience=Patience(longest_s=0.0))
        assert bob.checkpoint.revision == revision
        assert bob.checkpoint.manifest == ada.checkpoint.manifest
        assert bob.checkpoint.download_bytes(bob.everything) == bob.checkpoint.shard_bytes(bob.everything)
        assert (place / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
        assert not (place / "modeling.py").exists()
        with pytest.raises(Unavailable, match="nobody in the session"):
            await bob.fetch(bob.everything)
        bob.hears_of(ada)
        await bob.fetch(bob.everything)
        assert true_to(folder, bob, bob.everything)
        await take_down(bob.standing.to("ada"), revision=revision, folder=place)  # once more: what is here stays
        assert bob.checkpoint.download_bytes(bob.everything) == 0


async def test_description_when_the_folder_is_another_than_the_sessions_then_nothing_of_it_is_kept(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    async with host_and_guest(checkpoint_folder(), tmp_path) as (_, bob):
        place = shelf(tmp_path / "bob", "tiny", "0" * 40)
        with pytest.raises(Refused, match="another folder than the session was made with"):
            await take_down(bob.standing.to("ada"), revision="0" * 40, folder=place)
        assert not place.exists()


async def test_description_when_a_file_changed_at_the_host_then_the_guest_says_which(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    folder = checkpoint_folder()
    async with host_and_guest(folder, tmp_path) as (ada, bob):
        text = (folder / "tokenizer.json").read_text()
        (folder / "tokenizer.json").write_text(text.replace("model", "ledom"))
        with pytest.raises(Refused, match=r"another tokenizer\.json than it described"):
            await take_down(bob.standing.to("ada"), revision=ada.checkpoint.revision, folder=tmp_path / "place")


async def test_source_of_a_description_when_it_vanishes_then_the_guest_hears_so(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    async with host_and_guest(checkpoint_folder(), tmp_path) as (ada, bob):
        answering = bob.standing.to("ada")
        await ada.endpoint.close()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(take_down(answering, revision=ada.checkpoint.revision, folder=tmp_path / "p"), 20)


def entry(**changes: Any) -> bytes:
    files: list[Any] = [SmallFile("config.json", 2, "0" * 64)]
    weights: list[Any] = [WeightHead("model.safetensors", 100, 20, "0" * 64)]
    return described(changes.get("files", files), changes.get("weights", weights)).text


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"files": [], "weights": 7}',
        b'{"files": [["config.json", 2]], "weights": []}',
        b'{"files": [["config.json", "2", "00"]], "weights": []}',
        b"[" * 100_000,
        entry(files=[SmallFile("../config.json", 2, "0" * 64)]),
        entry(files=[SmallFile("modeling.py", 2, "0" * 64)]),
        entry(files=[SmallFile("config.json", 1 << 40, "0" * 64)]),
        entry(files=[SmallFile("config.json", -1, "0" * 64)]),
        entry(files=[SmallFile("config.json", 2, "0" * 64)] * 2),
        entry(weights=[WeightHead("/etc/model.safetensors", 100, 20, "0" * 64)]),
        entry(weights=[WeightHead("model.safetensors", 10, 20, "0" * 64)]),
        entry(weights=[WeightHead("model.safetensors", 1 << 60, 20, "0" * 64)]),
        entry(weights=[WeightHead(f"m{n}.safetensors", 1 << 40, 90_000_000, "0" * 64) for n in range(9)]),
    ],
)
def test_description_when_hostile_then_refused_though_its_digest_is_right(text: bytes) -> None:
    with pytest.raises(Refused):
        read_description(text, hashlib.sha256(text).hexdigest()[:40])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/models/SmolLM2-135M", "SmolLM2-135M"),
        ("/home/ada/my models/", "my-models"),
        ("/data/.hidden", "hidden"),
        ("/data/模型", "model"),
        ("/", "model"),
        ("/data/" + "a" * 300, "a" * 96),
    ],
)
def test_folder_when_others_are_told_of_it_then_by_a_name_that_can_be_part_of_a_path(path: str, name: str) -> None:
    assert folder_name(path) == name
    assert shelf(Path("/cache"), name, "0" * 40) == Path("/cache/folder") / name / ("0" * 40)


@pytest.mark.parametrize("name", ["..", "a/b", "", ".x", "a" * 97, "a\0b"])
def test_shelf_when_the_hosts_name_would_lead_elsewhere_then_refused(name: str) -> None:
    with pytest.raises(Refused, match="no name of a folder"):
        shelf(Path("/cache"), name, "0" * 40)


def test_revision_when_any_small_file_or_header_differs_then_it_is_another(checkpoint_folder: Make) -> None:
    folder = checkpoint_folder()
    seen = {folder_source(str(folder)).revision}
    assert folder_source(str(folder)).revision in seen
    for name in ("tokenizer.json", "config.json"):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content, indent=1))
        revision = folder_source(str(folder)).revision
        assert revision not in seen
        seen.add(revision)
