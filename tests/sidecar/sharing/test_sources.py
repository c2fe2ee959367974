"""Weights from member to member over real links: the model host is asked once, and nothing wrong is kept."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.sharing.lending import Lender
from kafila_sidecar.weights.format.units import Unit, units_in
from tests.sidecar.sharing.lab import REPO, WEIGHTS, LabMember, lab, link, true_to
from tests.support.model_host import ModelHost

Make = Callable[..., Path]


@pytest.fixture
def folder(checkpoint_folder: Make) -> Path:
    return checkpoint_folder(width=32)


@pytest.fixture
def host(folder: Path) -> Iterator[ModelHost]:
    with ModelHost({REPO: folder}) as host:
        yield host


def sent(host: ModelHost, *members: LabMember) -> int:
    """Bytes of tensors that the model host sent, without headers and what was only compared."""
    beside = sum(member.checkpoint.header_bytes + member.sources.borrower.checked_bytes for member in members)
    return host.sent_bytes(WEIGHTS) - beside


async def test_lab_when_one_has_all_then_the_others_get_it_from_there_and_the_host_is_asked_once(
    host: ModelHost, folder: Path, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada", "bob", "cyd") as (ada, bob, cyd):
        await ada.fetch(ada.everything)
        total = ada.checkpoint.shard_bytes(ada.everything)
        for other in (bob, cyd):
            other.hears_of(ada, bob)
            await other.fetch(other.everything)
            assert true_to(folder, other, other.everything)
            assert other.sources.borrower.borrowed_bytes == total
            assert other.sources.borrower.checked_bytes < total
        assert sent(host, ada, bob, cyd) == total
        assert ada.lender.lent_bytes + bob.lender.lent_bytes == 2 * total
        assert ada.draws == bob.draws == []


async def test_lab_when_blocks_move_then_each_byte_comes_from_who_had_it_and_the_rest_from_the_host(
    host: ModelHost, folder: Path, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada", "bob", "cyd") as (ada, bob, cyd):
        await asyncio.gather(ada.fetch(ada.blocks(0, 2)), bob.fetch(bob.blocks(2, 4)))
        cyd.hears_of(ada, bob)
        await cyd.fetch(cyd.everything)
        assert true_to(folder, cyd, cyd.everything)
        assert ada.lender.lent_bytes == bob.lender.lent_bytes == ada.checkpoint.shard_bytes(ada.blocks(0, 2))
        assert sent(host, ada, bob, cyd) == cyd.checkpoint.shard_bytes(cyd.everything)


async def test_unit_when_damaged_on_the_sources_disk_then_it_is_fetched_elsewhere(
    host: ModelHost, folder: Path, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada", "bob") as (ada, bob):
        await ada.fetch(ada.everything)
        tensor = ada.checkpoint.manifest.tensors["model.layers.1.mlp.up_proj.weight"]
        path = ada.checkpoint.folder / tensor.file
        content = bytearray(path.read_bytes())
        content[tensor.start] ^= 1
        path.write_bytes(content)
        bob.hears_of(ada)
        await bob.fetch(bob.everything)
        assert true_to(folder, bob, bob.everything)
        assert ada.lender.lent_bytes < bob.checkpoint.shard_bytes(bob.everything)
        assert sent(host, ada, bob) > bob.checkpoint.shard_bytes(bob.everything)


class LyingCheckpoint:
    """One that gives a wrong byte in each unit."""

    def __init__(self, member: LabMember) -> None:
        self._true = member.checkpoint

    def __getattr__(self, name: str) -> object:
        return getattr(self._true, name)

    def unit(self, unit: Unit) -> bytes | None:
        data = self._true.unit(unit)
        return data and data[:-1] + bytes([data[-1] ^ 1])


class AlteringLender(Lender):
    """One that passes on other bytes than it signs for."""

    async def _send(self, stream: Stream, told: object) -> None:
        if told.data:  # type: ignore[attr-defined]
            told.data = told.data[:-1] + bytes([told.data[-1] ^ 1])  # type: ignore[attr-defined]
        await super()._send(stream, told)  # type: ignore[arg-type]


async def test_member_when_it_signs_wrong_bytes_then_it_is_named_and_all_it_vouched_for_is_fetched_elsewhere(
    host: ModelHost, folder: Path, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada", "bob", "cyd") as (ada, bob, cyd):
        await ada.fetch(ada.everything)
        ada.lender._checkpoint = lambda: LyingCheckpoint(ada)  # type: ignore[assignment, return-value]
        for member in (bob, cyd):
            member.sources.borrower._draw = lambda most: 5  # the sixth of each sixteen
        bob.hears_of(ada)
        said = await bob.fetch(bob.everything)
        assert any("ada gave wrong bytes of model-" in sentence for sentence in said)
        assert true_to(folder, bob, bob.everything)
        assert bob.sources.distrusted == {"ada"}
        cyd.hears_of(ada, bob)
        await cyd.fetch(cyd.everything)
        assert true_to(folder, cyd, cyd.everything)


async def test_bytes_when_altered_on_their_way_then_the_sender_is_named_before_any_is_kept(
    host: ModelHost, folder: Path, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada", "bob") as (ada, bob):
        await ada.fetch(ada.everything)
        ada.lender.__class__ = AlteringLender
        bob.hears_of(ada)
        said = await bob.fetch(bob.everything)
        assert any("ada gave wrong bytes of model-" in sentence for sentence in said)
        assert bob.sources.borrower.borrowed_bytes == 0
        assert true_to(folder, bob, bob.everything)


async def test_whole_file_when_its_digest_shows_a_lie_that_no_check_hit_then_only_the_host_gives_it(
    host: ModelHost, folder: Path, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada", "bob") as (ada, bob):
        await ada.fetch(ada.everything)
        ada.lender._checkpoint = lambda: LyingCheckpoint(ada)  # type: ignore[assignment, return-value]
        bob.sources.borrower._draw = lambda most: -1  # none is compared
        bob.hears_of(ada)
        said = await bob.fetch(bob.everything)
        assert any("is not what the model host announced" in sentence for sentence in said)
        assert true_to(folder, bob, bob.everything)


async def test_source_when_it_vanishes_in_the_middle_then_the_host_gives_the_rest(
    host: ModelHost, folder: Path, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada", "bob") as (ada, bob):
        await ada.fetch(ada.everything)
        bob.hears_of(ada)
        answering = ada.lender._checkpoint
        asked = 0

        def vanishing() -> object:
            nonlocal asked
            asked += 1
            return VanishingCheckpoint(ada)

        ada.lender._checkpoint = vanishing  # type: ignore[assignment]
        await bob.fetch(bob.everything)
        assert true_to(folder, bob, bob.everything)
        assert asked == 1
        assert 0 < bob.sources.borrower.borrowed_bytes < bob.checkpoint.shard_bytes(bob.everything)
        assert answering() is ada.checkpoint


class VanishingCheckpoint:
    """One whose machine loses its links after three units."""

    def __init__(self, member: LabMember) -> None:
        self._member = member
        self._left = 3
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> object:
        return getattr(self._member.checkpoint, name)

    def unit(self, unit: Unit) -> bytes | None:
        if not self._left:
            asyncio.run_coroutine_threadsafe(self._member.endpoint.close(), self._loop)
            return None
        self._left -= 1
        return self._member.checkpoint.unit(unit)


async def test_source_when_no_link_stands_then_one_is_asked_for_and_given_up_afterwards(
    host: ModelHost, folder: Path, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada", "bob", linked=False) as (ada, bob), AsyncExitStack() as links:
        await ada.fetch(ada.everything)
        bob.hears_of(ada)
        bob.sources._link_s = 10.0
        fetching = asyncio.create_task(bob.fetch(bob.everything))
        async with asyncio.timeout(5):
            while not bob.draws:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await link(links, ada, bob)
        await fetching
        assert bob.draws == [["ada"], []]
        assert sent(host, ada, bob) == ada.checkpoint.shard_bytes(ada.everything)


async def test_source_when_no_link_can_be_made_then_the_host_gives_all(
    host: ModelHost, folder: Path, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada", "bob", linked=False) as (ada, bob):
        await ada.fetch(ada.blocks(0, 1))
        bob.hears_of(ada)
        await bob.fetch(bob.everything)
        assert true_to(folder, bob, bob.everything)
        assert bob.draws == [["ada"], []]


async def test_voucher_when_passed_on_then_it_names_the_first_that_had_the_bytes(
    host: ModelHost, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada", "bob", "cyd") as (ada, bob, cyd):
        await ada.fetch(ada.everything)
        bob.hears_of(ada)
        await bob.fetch(bob.everything)
        cyd.hears_of(bob)
        await cyd.fetch(cyd.everything)
        units = units_in(cyd.checkpoint.manifest, cyd.checkpoint.held)
        kept = {cyd.vouchers._kept[unit].by for unit in units if unit in cyd.vouchers._kept}
        assert bob.lender.lent_bytes > 0
        assert kept == {"ada"}


async def test_model_host_when_it_is_gone_then_members_that_hold_all_are_enough(
    host: ModelHost, folder: Path, tmp_path: Path
) -> None:
    async with lab(host, tmp_path, "ada", "bob", "cyd") as (ada, bob, cyd):
        await ada.fetch(ada.everything)
        host.stop()
        bob.hears_of(ada)
        await bob.fetch(bob.everything)
        assert true_to(folder, bob, bob.everything)
        assert bob.sources.borrower.checked_bytes == 0
        with pytest.raises(Unavailable, match="can't be reached"):
            await cyd.fetch(cyd.everything)
