"""Spares: fetched of members and the model host while nobody waits, within bounds, and paused once somebody does."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.runtime.activity import Activity
from kafila_sidecar.sharing import spares
from kafila_sidecar.sharing.inventory import Inventory, spans_of
from kafila_sidecar.sharing.rates import Rates
from kafila_sidecar.sharing.spares import SHARE_OF_FREE, SpareRoom, Spares
from tests.sidecar.sharing.lab import REPO, WEIGHTS, LabMember, lab, true_to
from tests.support.model_host import ModelHost

Make = Callable[..., Path]
SOON_S = 5.0


@pytest.fixture
def folder(checkpoint_folder: Make) -> Path:
    return checkpoint_folder(width=32)


@pytest.fixture
def host(folder: Path) -> Iterator[ModelHost]:
    with ModelHost({REPO: folder}) as host:
        yield host


class GatedWeights:
    """A lab member's weights. `gate`: what fetching waits for, once it has begun."""

    def __init__(self, member: LabMember) -> None:
        self._member = member
        self.began = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.broken_off = 0
        self.fails = 0

    async def fetch(self, names: Iterable[str]) -> None:
        self.began.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        if self.fails:
            self.fails -= 1
            raise Unavailable("the model host is away")
        await self._member.fetch(names)

    def download_bytes(self, names: Iterable[str]) -> int:
        return self._member.checkpoint.download_bytes(names)

    def shard_bytes(self, names: Iterable[str]) -> int:
        return self._member.checkpoint.shard_bytes(names)


def room(folder: Path, bound_bytes: int | None = None, left_bytes: int | None = None) -> SpareRoom:
    return SpareRoom(folder, bound_bytes=bound_bytes, left_bytes=lambda: left_bytes)


def made(weights: GatedWeights, where: SpareRoom, rest: Activity | None = None) -> Spares:
    return Spares(weights=weights, room=where, rest=rest or Activity(), quiet_s=0.0)


async def test_spares_when_idle_then_blocks_that_another_holds_come_from_there(
    host: ModelHost, folder: Path, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada", "bob") as (ada, bob):
        await ada.fetch(ada.blocks(0, 2))
        await bob.fetch(bob.blocks(2, 4))
        bob.hears_of(ada)
        before = host.sent_bytes(WEIGHTS)
        wanted = [bob.blocks(0, 1), bob.blocks(1, 2)]
        own = bob.blocks(2, 4)
        assert await made(GatedWeights(bob), room(tmp_path)).fetch(wanted, own, bob.everything)
        assert true_to(folder, bob, bob.blocks(0, 4))
        assert ada.lender.lent_bytes == ada.checkpoint.shard_bytes(ada.blocks(0, 2))
        assert host.sent_bytes(WEIGHTS) - before == bob.sources.borrower.checked_bytes
        assert bob.checkpoint.download_bytes(bob.everything) > 0  # the head is nobody's wish
        assert not await made(GatedWeights(bob), room(tmp_path)).fetch(wanted, own, bob.everything)


async def test_spares_when_an_answer_begins_then_fetching_breaks_off_at_once_and_goes_on_after_it(
    host: ModelHost, folder: Path, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada") as (ada,):
        weights, rest = GatedWeights(ada), Activity()
        weights.gate.clear()
        fetching = asyncio.create_task(
            made(weights, room(tmp_path), rest).fetch([ada.blocks(0, 1)], frozenset(), ada.everything)
        )
        await asyncio.wait_for(weights.began.wait(), SOON_S)
        with rest.at_work():
            weights.began.clear()
            for _ in range(20):
                await asyncio.sleep(0)
            assert weights.broken_off == 1
            assert not weights.began.is_set()
            weights.gate.set()
            assert ada.checkpoint.download_bytes(ada.blocks(0, 1)) > 0
        assert await asyncio.wait_for(fetching, SOON_S)
        assert true_to(folder, ada, ada.blocks(0, 1))


async def test_spares_when_they_are_wanted_no_more_then_cancelling_leaves_nothing_running(
    host: ModelHost, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada") as (ada,):
        weights = GatedWeights(ada)
        weights.gate.clear()
        fetching = asyncio.create_task(
            made(weights, room(tmp_path)).fetch([ada.blocks(0, 1)], frozenset(), ada.everything)
        )
        await asyncio.wait_for(weights.began.wait(), SOON_S)
        fetching.cancel()
        await asyncio.wait([fetching], timeout=SOON_S)
        assert fetching.cancelled()
        assert weights.broken_off == 1


async def test_spares_when_a_source_is_away_then_they_are_tried_again(
    host: ModelHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "AGAIN_S", 0.0)
    async with lab(host, tmp_path, "ada") as (ada,):
        weights = GatedWeights(ada)
        weights.fails = 2
        assert await made(weights, room(tmp_path)).fetch([ada.blocks(0, 1)], frozenset(), ada.everything)
        assert ada.checkpoint.download_bytes(ada.blocks(0, 1)) == 0


@pytest.mark.parametrize("bound", ["owner", "limit"])
async def test_spares_when_the_bound_is_reached_then_whole_blocks_that_fit_are_there_and_no_more(
    host: ModelHost, tmp_path: Path, bound: str
) -> None:
    async with lab(host, tmp_path, "ada") as (ada,):
        one = ada.checkpoint.shard_bytes(ada.blocks(0, 1))
        own = ada.blocks(3, 4)
        await ada.fetch(own)
        where = room(tmp_path, 2 * one + one // 2)
        if bound == "limit":
            had = ada.checkpoint.shard_bytes(ada.everything) - ada.checkpoint.download_bytes(ada.everything)

            def left() -> int:
                here = ada.checkpoint.shard_bytes(ada.everything) - ada.checkpoint.download_bytes(ada.everything)
                return 2 * one + one // 2 - (here - had)

            where = SpareRoom(tmp_path, bound_bytes=1 << 60, left_bytes=left)
        await made(GatedWeights(ada), where).fetch([ada.blocks(at, at + 1) for at in range(3)], own, ada.everything)
        assert [ada.checkpoint.download_bytes(ada.blocks(at, at + 1)) for at in range(4)] == [0, 0, one, 0]


def test_room_when_its_owner_did_not_say_then_it_is_a_share_of_the_free_disk_with_spares_counted_as_free(
    tmp_path: Path,
) -> None:
    few = room(tmp_path).left(0)
    assert few > 0
    assert room(tmp_path).left(SHARE_OF_FREE * few * 2) == 0
    assert room(tmp_path, 0).is_off
    assert not room(tmp_path).is_off
    assert room(tmp_path, 1000).left(400) == 600
    assert room(tmp_path, 1000).left(4000) == 0
    assert room(tmp_path, 1000, left_bytes=30).left(400) == 30


async def test_inventory_when_read_then_it_tells_what_is_on_disk_and_in_memory_block_by_block(
    host: ModelHost, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada") as (ada,):
        inventory, rates = Inventory(ada.checkpoint), Rates(tmp_path / "rates.json")
        assert (await inventory.entry(rates))["holds"]["disk_blocks"] == []
        await ada.fetch(ada.blocks(0, 1) | ada.blocks(2, 4))
        rates.fetch_bytes_per_s = 1e6
        held = (await inventory.entry(rates, in_memory=(2, 4), memory_head=True))["holds"]
        assert held["disk_blocks"] == [[0, 1], [2, 4]]
        assert held["memory_blocks"] == [[2, 4]]
        assert (held["disk_head"], held["memory_head"]) == (False, True)
        assert held["fetch_bytes_per_s"] == pytest.approx(1e6)
        assert held["load_bytes_per_s"] is None
        await ada.fetch(ada.everything)
        assert (await inventory.entry(rates))["holds"]["disk_head"]


@pytest.mark.parametrize(
    ("blocks", "spans"),
    [([], []), ([0], [[0, 1]]), ([0, 1, 2], [[0, 3]]), ([1, 2, 5, 7, 8], [[1, 3], [5, 6], [7, 9]])],
)
def test_spans_when_made_of_blocks_then_they_are_apart_and_ascend(blocks: list[int], spans: list[list[int]]) -> None:
    assert spans_of(blocks) == spans


class Loaded:
    def __init__(self, weight_bytes: int) -> None:
        self.weight_bytes = weight_bytes


async def test_rates_when_enough_came_then_they_are_measured_and_else_stay(tmp_path: Path) -> None:
    rates, missing = Rates(tmp_path / "rates.json"), [100_000_000, 0]
    with rates.fetching(lambda: missing.pop(0)):
        await asyncio.sleep(0.01)
    first = rates.fetch_bytes_per_s
    assert first is not None
    assert 0 < first <= 1e10
    missing = [1000, 0]
    with rates.fetching(lambda: missing.pop(0)):
        await asyncio.sleep(0)
    assert rates.fetch_bytes_per_s == first
    load = rates.loading(lambda *, before: Loaded(10_000_000))
    load(before=Loaded(1))
    assert rates.load_bytes_per_s is None
    assert load(before=None).weight_bytes == 10_000_000
    assert (rates.load_bytes_per_s or 0) > 0


async def test_rates_when_the_machine_was_started_again_then_they_are_known_still(tmp_path: Path) -> None:
    file = tmp_path / "measurements" / "rates.json"
    rates, missing = Rates(file), [100_000_000, 0]
    with rates.fetching(lambda: missing.pop(0)):
        await asyncio.sleep(0.01)
    rates.loading(lambda *, before: Loaded(10_000_000))(before=None)
    again = Rates(file)
    assert again.fetch_bytes_per_s == rates.fetch_bytes_per_s
    assert again.load_bytes_per_s == rates.load_bytes_per_s
    assert again.fetch_bytes_per_s
    assert again.load_bytes_per_s


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "7",
        "[" * 99999,
        '{"fetch_bytes_per_s": -1}',
        '{"load_bytes_per_s": "x"}',
        '{"load_bytes_per_s": Infinity}',
    ],
)
def test_rates_when_their_file_is_no_such_thing_then_nothing_is_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "rates.json").write_text(text)
    rates = Rates(tmp_path / "rates.json")
    assert (rates.fetch_bytes_per_s, rates.load_bytes_per_s) == (None, None)


async def test_rates_when_they_cannot_be_kept_then_they_are_measured_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("no folder")
    rates, missing = Rates(tmp_path / "taken" / "rates.json"), [100_000_000, 0]
    with rates.fetching(lambda: missing.pop(0)):
        await asyncio.sleep(0.01)
    assert rates.fetch_bytes_per_s
