"""The rendezvous that a host embeds."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafila_sidecar.errors import KafilaError, Unavailable
from kafila_sidecar.machine.embedding.embedded import EmbeddedRendezvous, rendezvous_note
from kafila_sidecar.machine.embedding.rendezvous_process import PORTS_FILE
from kafila_sidecar.net.portmap.codec import Transport
from kafila_sidecar.net.portmap.mapping import Mapped
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.mailbox import enter_again, open_room


async def no_router(transport: Transport, port: int, told: Callable[[Mapped | None], None]) -> None:
    """Offers nothing."""


async def test_start_when_asked_twice_at_once_then_one_rendezvous_that_answers(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        embedded = EmbeddedRendezvous(folder=tmp_path / "rendezvous", stack=stack, map_port=no_router)
        (first, note), (second, _) = await asyncio.gather(embedded.start(), embedded.start())
        assert first == second
        assert first.fingerprint
        assert note
        mailbox = await open_room(first)
        await mailbox.aclose()
    with pytest.raises(Unavailable):
        await open_room(first)


@pytest.mark.parametrize("noted", [None, "", "7", "0 0 0", "x y", "99999999 1"])
async def test_start_when_it_ran_before_then_it_is_where_it_was_and_rooms_are_found_again(
    tmp_path: Path, noted: str | None
) -> None:
    async def started(stack: AsyncExitStack) -> RendezvousAddress:
        embedded = EmbeddedRendezvous(folder=tmp_path / "rendezvous", stack=stack, map_port=no_router)
        return (await embedded.start())[0]

    async with AsyncExitStack() as stack:
        before = await started(stack)
        mailbox = await open_room(before)
        place = mailbox.place
        await mailbox.aclose()
    if noted is not None:  # by a crash, or somebody's hand
        (tmp_path / "rendezvous" / "ports").write_text(noted)
    async with AsyncExitStack() as stack:
        after = await started(stack)
        if noted is None:
            assert after == before
        again = await enter_again(after, place)
        await again.aclose()


@pytest.mark.parametrize("needed", [False, True])
async def test_lent_when_it_is_given_back_then_it_serves_only_where_a_session_needs_it(
    tmp_path: Path, needed: bool
) -> None:
    async with AsyncExitStack() as stack:
        embedded = EmbeddedRendezvous(
            folder=tmp_path / "rendezvous", stack=stack, map_port=no_router, is_needed=lambda _: needed
        )
        async with embedded.lent() as (address, _):
            async with embedded.lent():
                pass
            await (await open_room(address)).aclose()  # somebody else still has it
        if needed:
            await (await open_room(address)).aclose()
        else:
            with pytest.raises(Unavailable):
                await open_room(address)
            assert (await embedded.start())[0] == address
            await (await open_room(address)).aclose()


class TellsNetwork:
    """A network that can be told, and what it was told of."""

    def __init__(self) -> None:
        self.stands = False
        self.doubts = 0

    def doubt(self) -> None:
        self.doubts += 1

    @asynccontextmanager
    async def kept(self, port: int, fingerprint: str) -> AsyncIterator[None]:
        self.stands = True
        yield
        self.stands = False


async def test_start_when_the_machine_moved_meanwhile_then_its_address_of_now_and_the_network_is_told_anew(
    tmp_path: Path,
) -> None:
    here, told = ["192.168.1.7"], TellsNetwork()
    async with AsyncExitStack() as stack:
        embedded = EmbeddedRendezvous(
            folder=tmp_path / "rendezvous", stack=stack, map_port=None, announcement=told, own_address=lambda: here[0]
        )
        before, _ = await embedded.start()
        here[0] = "192.168.2.9"
        embedded.moved()
        after, _ = await embedded.start()
        assert (before.host, after.host, told.doubts) == ("192.168.1.7", "192.168.2.9", 1)
        assert embedded.is_found_by_number(before)  # it has the same certificate
        assert embedded.is_found_by_number(after)
    assert not told.stands


async def test_start_when_its_key_can_not_be_kept_then_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "rendezvous").write_text("a file where the folder should be")
    async with AsyncExitStack() as stack:
        with pytest.raises(KafilaError) as refused:
            await EmbeddedRendezvous(folder=tmp_path / "rendezvous", stack=stack, map_port=no_router).start()
        assert refused.value.code == "FAILED_PRECONDITION"


async def test_start_when_it_ran_before_then_at_the_same_ports_where_mailboxes_of_that_time_are_good(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "rendezvous"
    async with AsyncExitStack() as stack:
        before, _ = await EmbeddedRendezvous(folder=folder, stack=stack, map_port=no_router).start()
        mailbox = await open_room(before)
        await mailbox.aclose()
    async with AsyncExitStack() as stack:
        after, _ = await EmbeddedRendezvous(folder=folder, stack=stack, map_port=no_router).start()
        assert after == before
        again = await enter_again(after, mailbox.place)
        await again.aclose()


@pytest.mark.parametrize("kept", ["taken", "nonsense", "gone"])
async def test_start_when_its_old_ports_are_not_to_be_had_then_at_others(kept: str, tmp_path: Path) -> None:
    folder = tmp_path / "rendezvous"
    async with AsyncExitStack() as stack:
        before, _ = await EmbeddedRendezvous(folder=folder, stack=stack, map_port=no_router).start()
    async with AsyncExitStack() as stack:
        if kept == "taken":
            server = await asyncio.start_server(lambda _, writer: writer.close(), "0.0.0.0", before.port)
            await stack.enter_async_context(server)
        elif kept == "nonsense":
            (folder / PORTS_FILE).write_bytes(b"7770")
        else:
            (folder / PORTS_FILE).unlink()
        after, _ = await EmbeddedRendezvous(folder=folder, stack=stack, map_port=no_router).start()
        assert (after.port != before.port, after.fingerprint) == (True, before.fingerprint)
        mailbox = await open_room(after)
        await mailbox.aclose()


@pytest.mark.parametrize(
    ("host", "outside", "says"),
    [
        ("127.0.0.1", None, "only this machine"),
        ("192.168.1.5", None, "this network only"),
        ("192.168.1.5", ("100.64.0.9", 7000), "this network only"),
        ("192.168.1.5", ("8.8.8.8", 7000), "members elsewhere write @8.8.8.8:7000#abcdefghij after the code's words"),
        ("8.8.8.8", None, "reachable from outside"),
    ],
)
def test_note_when_the_address_is_known_then_it_says_who_can_reach_it(
    host: str, outside: tuple[str, int] | None, says: str
) -> None:
    assert says in rendezvous_note(RendezvousAddress(host, 7770, "abcdefghij"), outside)


async def test_start_when_the_router_forwards_ports_then_asked_for_all_and_given_up_in_the_end(tmp_path: Path) -> None:
    asked: list[tuple[Transport, int]] = []
    given_up: list[int] = []

    async def router(transport: Transport, port: int, told: Callable[[Mapped | None], None]) -> None:
        asked.append((transport, port))
        told(Mapped("PCP", ("8.8.8.8", 7000)))
        try:
            await asyncio.Event().wait()
        finally:
            given_up.append(port)

    async with AsyncExitStack() as stack:
        embedded = EmbeddedRendezvous(
            folder=tmp_path / "rendezvous", stack=stack, map_port=router, own_address=lambda: "192.168.1.5"
        )
        address, note = await embedded.start()
        assert address.host == "192.168.1.5"
        assert f"@8.8.8.8:7000#{address.fingerprint}" in note
    assert [transport for transport, _ in asked] == [Transport.TCP, Transport.UDP, Transport.UDP]
    assert asked[0][1] == address.port
    assert sorted(given_up) == sorted(port for _, port in asked)


@pytest.mark.parametrize("silent", [True, False])
async def test_start_when_the_router_offers_nothing_then_it_goes_on_soon(silent: bool, tmp_path: Path) -> None:
    async def router(transport: Transport, port: int, told: Callable[[Mapped | None], None]) -> None:
        if silent:
            await asyncio.Event().wait()
        raise Unavailable("the router is in a bad mood")

    async with asyncio.timeout(5), AsyncExitStack() as stack:
        embedded = EmbeddedRendezvous(
            folder=tmp_path / "rendezvous",
            stack=stack,
            map_port=router,
            own_address=lambda: "192.168.1.5",
            patience_s=0.1,
        )
        assert "this network only" in (await embedded.start())[1]


async def test_own_when_it_is_asked_for_then_it_is_known_by_its_certificate_wherever_it_serves(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        embedded = EmbeddedRendezvous(folder=tmp_path / "rendezvous", stack=stack, map_port=no_router)
        assert not embedded.is_own(RendezvousAddress("192.0.2.1", 7770, "jlyz4dfazcnx7dpb4mdg"))
        address, _ = await embedded.start()
    beside = EmbeddedRendezvous(folder=tmp_path / "rendezvous", stack=AsyncExitStack(), map_port=no_router)
    assert beside.is_own(replace(address, host="192.0.2.99", port=1))
    assert not beside.is_own(replace(address, fingerprint=None, insecure=True))
