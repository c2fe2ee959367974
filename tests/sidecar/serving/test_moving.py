"""Blocks that move from stage to stage: k of them are fetched, of whoever had them, and k are read into memory."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.serving.stage import Stage
from kafila_sidecar.weights.fetching.landing import Progress, Waiting
from tests.sidecar.serving.stages import STOP, MemberLinks, TextHere, plan
from tests.sidecar.sharing.lab import REPO, WEIGHTS, LabMember, lab
from tests.support.model_host import ModelHost

pytestmark = pytest.mark.mlx


class LabWeights:
    """A lab member's checkpoint with the others as sources, as a session gives it to its stage."""

    def __init__(self, member: LabMember, others: Callable[[], Collection[LabMember]]) -> None:
        self.member = member
        self._others = others
        self.asked: list[int] = []  # bytes that each fetch was to bring

    @property
    def small_files(self) -> Path:
        return self.member.checkpoint.small_files

    def shard(self, *, start: int, end: int, head: bool) -> frozenset[str]:
        return self.member.checkpoint.shard(start=start, end=end, head=head)

    async def fetch(
        self, names: Iterable[str], *, progress: Progress | None = None, waiting: Waiting | None = None
    ) -> None:
        names = frozenset(names)
        self.asked.append(self.member.checkpoint.shard_bytes(names))
        self.member.hears_of(*(other for other in self._others() if other is not self.member))
        await self.member.checkpoint.fetch(names, progress=progress, members=self.member.sources)

    def download_bytes(self, names: Iterable[str]) -> int:
        return self.member.checkpoint.download_bytes(names)

    def files_for(self, names: Iterable[str]) -> dict[Path, frozenset[str]]:
        return self.member.checkpoint.files_for(names)


class ReadTensors:
    """Notes which tensors a shard is made of that were not in memory before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from kafila_sidecar.runtime.shard.making import loading

        self.by_part: dict[tuple[int, int], set[str]] = {}
        true = loading.load_part

        def load_part(config: Any, files: Mapping[Path, Collection[str]], *, kept: Any, **part: Any) -> Any:
            named = {name for names in files.values() for name in names}
            self.by_part[part["start"], part["end"]] = named - set(kept or ())
            return true(config, files, kept=kept, **part)

        monkeypatch.setattr(loading, "load_part", load_part)


async def test_blocks_when_they_move_then_only_they_are_fetched_and_only_they_are_read(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = ReadTensors(monkeypatch)
    mlx = MlxThread()
    with ModelHost({REPO: tiny}) as host:
        async with lab(host, tmp_path, "ada", "bob", "cyd") as members, AsyncExitStack() as stack:
            stack.callback(mlx.close)
            weights = {member.name: LabWeights(member, lambda: members) for member in members}
            stages = {name: stage_of(name, mine, mlx) for name, mine in weights.items()}
            ada, bob = weights["ada"], weights["bob"]
            for epoch, (cuts, order) in enumerate(
                [((0, 2, 4, 6), ("ada", "bob", "cyd")), ((0, 2, 6), ("ada", "bob"))], 1
            ):
                headers = sum(member.checkpoint.header_bytes for member in members)
                before = host.sent_bytes(WEIGHTS)
                proposal = plan(epoch, cuts, order, 1)
                await asyncio.gather(*(stages[name].load(proposal, lambda *_, **__: None) for name in order))
            moved = bob.shard(start=4, end=6, head=False)
            cyd = weights["cyd"].member
            assert bob.asked[-1] == bob.member.checkpoint.shard_bytes(moved)
            assert cyd.lender.lent_bytes == bob.asked[-1]
            assert ada.asked[-1] == 0
            compared = sum(member.sources.borrower.checked_bytes for member in members)
            assert host.sent_bytes(WEIGHTS) - before == compared
            assert before == headers + ada.member.checkpoint.shard_bytes(ada.shard(start=0, end=6, head=True))
            assert read.by_part == {
                (0, 2): set(),
                (2, 4): bob.shard(start=2, end=4, head=False),
                (4, 6): moved,
                (2, 6): moved,
            }
            await asyncio.gather(*(stage.close(STOP) for stage in stages.values()))


def stage_of(name: str, weights: LabWeights, mlx: MlxThread) -> Stage:
    links = MemberLinks()
    return Stage(
        name=name,
        weights=weights,
        mlx=mlx,
        text=TextHere,
        links=lambda: links,
        traced=lambda record: None,
        busy=lambda busy: None,
        broken=lambda code, sentence: None,
        misled=lambda by, sentence: None,
    )


def test_shard_when_loaded_then_through_the_function_that_is_watched() -> None:
    assert "load_part" in Shard.load.__code__.co_names
