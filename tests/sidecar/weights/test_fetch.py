"""Fetching from a real HTTP server that counts what it sends and misbehaves on demand."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafila_sidecar.errors import Denied, NotFound, Refused, Unavailable
from kafila_sidecar.weights.checkpoint import Checkpoint, open_checkpoint
from kafila_sidecar.weights.fetching.fetch import PIECE_BYTES
from kafila_sidecar.weights.fetching.transfer import Changed, Patience
from kafila_sidecar.weights.format.manifest import HostileHeader
from kafila_sidecar.weights.providers.hub import Hub
from tests.support.model_host import Faults, ModelHost

Make = Callable[..., Path]
REPO = "kafila/model"
QUICK = Patience(tries=3, first_wait_s=0.001, longest_s=0.004)
WEIGHTS = ".safetensors"
FILES = "-of-"  # in the names of weight files, and not in that of their index


async def opened(host: ModelHost, cache: Path, token: str | None = None, piece_bytes: int = PIECE_BYTES) -> Checkpoint:
    hub = Hub(endpoint=host.endpoint, token=token)
    return await open_checkpoint(REPO, hub=hub, cache=cache, patience=QUICK, piece_bytes=piece_bytes)


def everything(checkpoint: Checkpoint) -> frozenset[str]:
    return checkpoint.shard(start=0, end=4, head=True)


def assert_true_to(folder: Path, checkpoint: Checkpoint, names: frozenset[str]) -> None:
    """The bytes of `names` on this disk are those of the original files."""
    files = checkpoint.files_for(names)
    assert frozenset().union(*files.values()) == names
    for path, tensors in files.items():
        for tensor in (checkpoint.manifest.tensors[name] for name in tensors):
            original = (folder / tensor.file).read_bytes()
            assert path.stat().st_size == len(original)
            assert path.read_bytes()[tensor.start : tensor.end] == original[tensor.start : tensor.end]


TIED, UNTIED, PACKED = {"tied": True}, {"tied": False}, {"tied": False, "bits": 4, "width": 32}


@pytest.mark.parametrize("shape", [TIED, UNTIED, PACKED])
@pytest.mark.parametrize(("cuts", "cdn"), [((0, 4), True), ((0, 3, 4), False), ((0, 1, 2, 3, 4), False)])
async def test_each_member_fetches_exactly_its_tensors_and_the_headers(
    checkpoint_folder: Make, tmp_path: Path, shape: Any, cuts: tuple[int, ...], cdn: bool
) -> None:
    folder = checkpoint_folder(**shape)
    for start, end in pairwise(cuts):
        with ModelHost({REPO: folder}, cdn=cdn) as host:
            member = await opened(host, tmp_path / f"member{start}")
            names = member.shard(start=start, end=end, head=start == 0)
            headers_sent = host.sent_bytes(WEIGHTS)
            await member.fetch(names)
            assert_true_to(folder, member, names)
            assert member.header_bytes == headers_sent == member.manifest.header_bytes
            assert member.fetched_bytes == host.sent_bytes(WEIGHTS) - headers_sent == member.shard_bytes(names)
            assert member.small_bytes == host.sent_bytes() - host.sent_bytes(WEIGHTS)


async def test_replan_fetches_only_what_is_new_and_a_restart_nothing(checkpoint_folder: Make, tmp_path: Path) -> None:
    folder = checkpoint_folder()
    with ModelHost({REPO: folder}) as host:
        before = await opened(host, tmp_path)
        await before.fetch(before.shard(start=0, end=2, head=False))
        sent = host.sent_bytes(WEIGHTS)
        after = await opened(host, tmp_path)
        names = after.shard(start=1, end=4, head=False)
        assert after.download_bytes(names) == after.shard_bytes(after.shard(start=2, end=4, head=False))
        await after.fetch(names)
        assert after.fetched_bytes == host.sent_bytes(WEIGHTS) - sent == before.shard_bytes(names) * 2 // 3
        assert after.header_bytes == 0
        assert_true_to(folder, after, names)
        requests = len(host.seen)
        await after.fetch(names)
        assert len(host.seen) == requests


async def test_whole_checkpoint_gets_the_names_of_whole_files(checkpoint_folder: Make, tmp_path: Path) -> None:
    folder = checkpoint_folder(tied=False)
    with ModelHost({REPO: folder}) as host:
        checkpoint = await opened(host, tmp_path)
        await checkpoint.fetch(everything(checkpoint))
    for path in folder.glob(f"*{WEIGHTS}"):
        assert (checkpoint.folder / path.name).read_bytes() == path.read_bytes()


async def test_progress_starts_at_what_is_here_and_ends_at_all(checkpoint_folder: Make, tmp_path: Path) -> None:
    with ModelHost({REPO: checkpoint_folder()}) as host:
        checkpoint = await opened(host, tmp_path)
        await checkpoint.fetch(checkpoint.shard(start=0, end=1, head=False))
        told: list[tuple[int, int]] = []
        await checkpoint.fetch(everything(checkpoint), progress=lambda here, wanted: told.append((here, wanted)))
    total = checkpoint.shard_bytes(everything(checkpoint))
    assert told == sorted(told)
    assert told[0] == (checkpoint.shard_bytes(checkpoint.shard(start=0, end=1, head=False)), total)
    assert told[-1] == (total, total)


async def test_connection_cut_in_the_middle_goes_on_where_it_stopped(checkpoint_folder: Make, tmp_path: Path) -> None:
    folder = checkpoint_folder(width=64, files=1)
    with ModelHost({REPO: folder}) as host:
        checkpoint = await opened(host, tmp_path)
        host.faults = Faults(only=FILES, cut_after_bytes=1000, times=7)
        sent = host.sent_bytes(WEIGHTS)
        await checkpoint.fetch(everything(checkpoint))
        assert host.sent_bytes(WEIGHTS) - sent == checkpoint.shard_bytes(everything(checkpoint))
    assert_true_to(folder, checkpoint, everything(checkpoint))


TRANSIENT = {
    "whole file instead of the range": Faults(only=FILES, whole=True, times=2),
    "other range than asked": Faults(only=FILES, wrong_range=True, times=2),
    "overloaded": Faults(only=FILES, status=503, times=2),
    "cut before the first byte": Faults(only=FILES, cut_after_bytes=0, times=2),
}


@pytest.mark.parametrize("name", TRANSIENT)
async def test_passing_fault_is_survived_and_no_wrong_byte_is_kept(
    checkpoint_folder: Make, tmp_path: Path, name: str
) -> None:
    folder = checkpoint_folder()
    with ModelHost({REPO: folder}, faults=TRANSIENT[name]) as host:
        checkpoint = await opened(host, tmp_path)
        host.faults = TRANSIENT[name]
        await checkpoint.fetch(everything(checkpoint))
    assert_true_to(folder, checkpoint, everything(checkpoint))


LASTING: dict[str, tuple[Faults, type[Exception], str]] = {
    "whole files only": (Faults(whole=True), Unavailable, "answers with the whole of model-"),
    "other ranges than asked": (Faults(wrong_range=True), Unavailable, "instead of those asked for"),
    "overloaded": (Faults(status=503), Unavailable, "answered 503"),
    "dead": (Faults(cut_after_bytes=0), Unavailable, "can't be reached for model-"),
    "forbidden": (Faults(status=403), Denied, "HF_TOKEN"),
    "gone": (Faults(status=404), NotFound, "has no model-"),
}


@pytest.mark.parametrize("name", LASTING)
async def test_lasting_fault_ends_in_one_sentence_and_later_the_fetch_goes_on(
    checkpoint_folder: Make, tmp_path: Path, name: str
) -> None:
    faults, error, sentence = LASTING[name]
    folder = checkpoint_folder()
    with ModelHost({REPO: folder}) as host:
        checkpoint = await opened(host, tmp_path)
        host.faults = faults
        with pytest.raises(error, match=sentence):
            await checkpoint.fetch(everything(checkpoint))
        assert checkpoint.fetched_bytes == 0
        with pytest.raises(Refused):
            checkpoint.files_for(everything(checkpoint))
        host.faults = Faults()
        await checkpoint.fetch(everything(checkpoint))
    assert_true_to(folder, checkpoint, everything(checkpoint))


@pytest.mark.parametrize("cdn", [False, True])
async def test_changed_file_is_noticed_and_fetched_anew_by_the_next_start(
    checkpoint_folder: Make, tmp_path: Path, cdn: bool
) -> None:
    folder = checkpoint_folder()
    with ModelHost({REPO: folder}, cdn=cdn, digests=False) as host:
        checkpoint = await opened(host, tmp_path)
        await checkpoint.fetch(checkpoint.shard(start=0, end=2, head=False))
        for path in folder.glob(f"*{WEIGHTS}"):
            path.write_bytes(path.read_bytes()[:-1] + b"\xff")
        with pytest.raises(Changed, match="changed at the model host"):
            await checkpoint.fetch(everything(checkpoint))
        again = await opened(host, tmp_path)
        while again.download_bytes(everything(again)):  # each file that was begun before is noticed once
            try:
                await again.fetch(everything(again))
            except Changed:
                again = await opened(host, tmp_path)
    assert_true_to(folder, again, everything(again))


async def test_cancelled_fetch_keeps_what_came_and_can_go_on(checkpoint_folder: Make, tmp_path: Path) -> None:
    folder = checkpoint_folder(width=128)
    with ModelHost({REPO: folder}) as host:
        checkpoint = await opened(host, tmp_path, piece_bytes=32768)
        host.faults = Faults(only=FILES, rate_bytes_per_s=1e6)
        enough = asyncio.Event()

        def progress(here: int, wanted: int) -> None:
            if here > wanted / 4:
                enough.set()

        running = asyncio.create_task(checkpoint.fetch(everything(checkpoint), progress=progress))
        await enough.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        host.faults = Faults()
        again = await opened(host, tmp_path)
        left = again.download_bytes(everything(again))
        assert 0 < left < again.shard_bytes(everything(again))
        assert left == again.shard_bytes(everything(again)) - checkpoint.fetched_bytes
        await again.fetch(everything(again))
        assert again.fetched_bytes == left
    assert_true_to(folder, again, everything(again))


async def test_token_goes_to_the_model_host_and_to_nobody_it_points_to(checkpoint_folder: Make, tmp_path: Path) -> None:
    with ModelHost({REPO: checkpoint_folder()}, gated={REPO: "secret"}, cdn=True) as host:
        checkpoint = await opened(host, tmp_path, token="secret")
        await checkpoint.fetch(everything(checkpoint))
        assert {request.token for request in host.seen if not request.cdn} == {"secret"}
        assert {request.token for request in host.seen if request.cdn} == {None}


async def test_weights_that_no_disk_here_can_hold_are_refused_before_they_are_fetched(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    folder = checkpoint_folder(files=1)
    (path,) = folder.glob(f"*{WEIGHTS}")
    huge = 1 << 42
    at, header = 0, {}
    for name in json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]:
        size = huge if name.endswith("embed_tokens.weight") else 4
        header[name] = {"dtype": "F32", "shape": [size // 4], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    with path.open("r+b") as file:
        file.truncate(8 + len(text) + at)
    with ModelHost({REPO: folder}, digests=False) as host:
        checkpoint = await opened(host, tmp_path)
        assert shutil.disk_usage(tmp_path).free < huge
        with pytest.raises(Refused, match=r"needs 4398\.0 GB more at .* GB are free"):
            await checkpoint.fetch(everything(checkpoint))
        assert checkpoint.fetched_bytes == 0


async def test_damaged_transfer_is_noticed_once_the_file_is_whole(checkpoint_folder: Make, tmp_path: Path) -> None:
    folder = checkpoint_folder(files=1)
    with ModelHost({REPO: folder}) as host:
        checkpoint = await opened(host, tmp_path)
        (path,) = folder.glob(f"*{WEIGHTS}")
        before = path.stat()
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the host's tag stays, so only the digest can tell
        with pytest.raises(Refused, match="is damaged"):
            await checkpoint.fetch(everything(checkpoint))
        assert checkpoint.download_bytes(everything(checkpoint)) > 0


async def test_hostile_header_is_refused_and_leaves_no_file(checkpoint_folder: Make, tmp_path: Path) -> None:
    folder = checkpoint_folder(files=1)
    (path,) = folder.glob(f"*{WEIGHTS}")
    path.write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    with ModelHost({REPO: folder}) as host:
        with pytest.raises(HostileHeader, match=path.name):
            await opened(host, tmp_path)
        assert host.sent_bytes(WEIGHTS) == 8
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if name.endswith(".partial")]


async def test_same_model_opened_and_fetched_twice_at_once_comes_once(checkpoint_folder: Make, tmp_path: Path) -> None:
    with ModelHost({REPO: checkpoint_folder()}) as host:
        both = await asyncio.gather(opened(host, tmp_path), opened(host, tmp_path))
        names = everything(both[0])
        await asyncio.gather(*(checkpoint.fetch(names) for checkpoint in both))
        assert sum(checkpoint.header_bytes for checkpoint in both) == both[0].manifest.header_bytes
        assert sum(checkpoint.fetched_bytes for checkpoint in both) == both[0].shard_bytes(names)
    for checkpoint in both:
        assert checkpoint.files_for(names)


@pytest.mark.parametrize("whole", [False, True])
async def test_byte_in_the_store_when_it_changes_then_its_request_alone_is_fetched_again(
    checkpoint_folder: Make, tmp_path: Path, whole: bool
) -> None:
    folder = checkpoint_folder(width=64)
    with ModelHost({REPO: folder}) as host:
        checkpoint = await opened(host, tmp_path, piece_bytes=4096)
        names = everything(checkpoint) if whole else checkpoint.shard(start=1, end=3, head=False)
        await checkpoint.fetch(names)
        tensor = max((checkpoint.manifest.tensors[name] for name in names), key=lambda tensor: tensor.size_bytes)
        (path,) = (path for path in checkpoint.files_for([tensor.name]))
        with path.open("r+b") as file:
            file.seek(tensor.start)
            first = file.read(1)
            file.seek(tensor.start)
            file.write(bytes([first[0] ^ 1]))
        sent = host.sent_bytes(WEIGHTS)
        again = await opened(host, tmp_path)
        await again.fetch(names)
        assert 0 < host.sent_bytes(WEIGHTS) - sent <= 4096
    assert_true_to(folder, again, names)


async def test_host_that_is_away_is_waited_for_in_words_with_the_time_of_the_next_try(
    checkpoint_folder: Make, tmp_path: Path
) -> None:
    folder = checkpoint_folder(files=1)
    with ModelHost({REPO: folder}) as host:
        checkpoint = await opened(host, tmp_path)
        host.faults = Faults(only=FILES, status=503, times=2)
        said: list[str] = []
        await checkpoint.fetch(everything(checkpoint), waiting=said.append)
    assert said == ["the model host answers 503, next try in 1 s", ""]
    assert_true_to(folder, checkpoint, everything(checkpoint))


def test_patience_waits_ever_longer_and_gives_up_after_ten_minutes_of_waits() -> None:
    patience = Patience()
    waits = [patience.wait_s(failures, 0.0) for failures in range(1, 40)]
    assert waits == sorted(waits)
    assert waits[:3] == [0.5, 1.0, 2.0]
    assert max(waits) == 30.0
    assert patience.longest_s == 600.0
    assert patience.wait_s(1, 45.0) == 45.0  # the host's own wish
