"""Two members of a real session at a real rendezvous, linked over loopback: by every kind of path."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kafila_proto import ring_pb2
from kafila_rendezvous.certificate import make_key_pair
from kafila_rendezvous.config import RendezvousConfig
from kafila_rendezvous.server import Serving, serve
from kafila_sidecar.errors import Unavailable
from kafila_sidecar.machine.reaching import Reaching
from kafila_sidecar.net.candidates import Address, Interface
from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.net.nat.monitor import NetworkMonitor
from kafila_sidecar.net.udp import Received, UdpSocket, open_socket
from kafila_sidecar.session import join, opening
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.channel.events import RoomMoved
from kafila_sidecar.session.rendezvous.address import RendezvousAddress as Place
from kafila_sidecar.session.rendezvous.elsewhere import Elsewhere, OfferedRendezvous, nowhere
from tests.sidecar.net.people import echo

HOST = "127.0.0.1"
Passes = Callable[[Address], bool]


class Filtered:
    """A socket behind a firewall: what may not go out to a place does not."""

    def __init__(self, deliver: Callable[[list[Received]], None], passes: Passes) -> None:
        self._udp = UdpSocket(open_socket(HOST, 0), deliver)
        self._passes = passes
        self.takes_ipv6, self.forbids_fragments = self._udp.takes_ipv6, self._udp.forbids_fragments
        self.address = self._udp.address

    def send(self, datagrams: Sequence[bytes], target: Address) -> None:
        if self._passes(target):
            self._udp.send(datagrams, target)

    def close(self) -> None:
        self._udp.close()


class ReachedMember:
    """What the sidecar wires for one session, without a model."""

    def __init__(self, channel: Channel, passes: Passes) -> None:
        self.endpoint = Endpoint(lambda deliver: Filtered(deliver, passes), host=HOST, interfaces=interfaces)
        self.monitor = NetworkMonitor(self.endpoint, interfaces=interfaces)
        self.reaching = Reaching(
            channel=channel, endpoint=self.endpoint, monitor=self.monitor, further=(), on_stream=self._take
        )
        self.channel = channel
        self.running = asyncio.create_task(channel.run())

    async def _take(self, stream: Stream) -> None:
        if stream.kind != StreamKind.CONTROL:
            await echo(stream)
            return
        while (sealed := await stream.receive()) is not None:
            await self.channel.receive(sealed)

    async def follow_moves(self, peer: "ReachedMember", moved: asyncio.Event) -> None:
        """As the session's driver does."""
        async for event in self.channel.events():
            if isinstance(event, RoomMoved):
                self.reaching.moved([peer.channel.self_name])
                moved.set()

    async def link(self, peer: "ReachedMember", deadline_s: float = 10.0) -> Link:
        candidates = peer.reaching.candidates()
        return await self.reaching.dial(peer.channel.self_name, candidates, deadline_s)

    async def close(self) -> None:
        self.reaching.stop()
        await self.endpoint.close()
        await self.channel.leave()
        await asyncio.wait([self.running])


def interfaces() -> list[Interface]:
    return [Interface("lo", True, (HOST,))]


def local(folder: Path, elsewhere: Elsewhere = nowhere) -> opening.Local:
    folder.mkdir()
    return opening.Local(folder, Versions("1", planner=1, mlx_lm="1"), elsewhere=elsewhere)


@dataclass
class ReachedServer:
    """A rendezvous that can be stopped and started again on the same ports, with the same certificate and notes."""

    config: RendezvousConfig = field(
        default_factory=lambda: RendezvousConfig(host=HOST, port=0, key_pair=make_key_pair())
    )
    running: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self) -> Serving:
        serving = await self.running.enter_async_context(serve(self.config))
        self.config = replace(self.config, port=serving.port, udp_port=serving.udp_ports[0])
        return serving

    async def stop(self) -> None:
        await self.running.aclose()


@asynccontextmanager
async def two_members(
    folder: Path, passes: Callable[[int], Passes], server: ReachedServer | None = None, elsewhere: Elsewhere = nowhere
) -> AsyncIterator[tuple[ReachedMember, ReachedMember]]:
    """`passes` gets the rendezvous' first UDP port and says what members may send to."""
    server = server or ReachedServer()
    serving = await server.start()
    async with server.running:
        place = Place(HOST, serving.port, serving.fingerprint)
        terms = ring_pb2.SessionTerms(model="none", revision="none", members_wanted=2, context_tokens=1, concurrency=1)
        founded = await join.found(rendezvous=place, terms=terms, name="oak", local=local(folder / "oak", elsewhere))
        oak = ReachedMember(founded, passes(serving.udp_ports[0]))
        assert founded.code is not None
        approach = await join.approach(code=founded.code, name="elm", local=local(folder / "elm"))
        elm = ReachedMember(await approach.enrol(), passes(serving.udp_ports[0]))
        for member in (oak, elm):
            member.reaching.start(lambda: None)
        while len(oak.channel.members) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        try:
            yield oak, elm
        finally:
            await oak.close()
            await elm.close()


@pytest.mark.parametrize(
    ("passes", "path"),
    [
        pytest.param(lambda port: lambda target: True, "direct", id="open"),
        pytest.param(lambda port: lambda target: target[1] in (port, port + 1), "relay", id="relay-only"),
        pytest.param(lambda port: lambda target: False, "relay", id="no-udp"),
    ],
)
async def test_link_when_firewalls_let_through_much_or_little_then_bytes_flow_by_what_is_left(
    passes: Callable[[int], Passes], path: str, tmp_path: Path
) -> None:
    async with two_members(tmp_path, passes) as (oak, elm):
        here, there = await asyncio.gather(oak.link(elm), elm.link(oak))
        assert (here.path, there.path) == (path, path)
        stream = await here.open(7)
        for message in (b"", b"x" * 8192, bytes(1 << 20)):
            await stream.send(message)
            assert await stream.receive(10) == message


@pytest.mark.parametrize("udp", [True, False])
async def test_relayed_link_when_the_rendezvous_is_started_again_then_no_byte_is_lost(
    udp: bool, tmp_path: Path
) -> None:
    server = ReachedServer(RendezvousConfig(host=HOST, port=0, key_pair=make_key_pair(), notes=tmp_path / "mailboxes"))
    ports: list[int] = []

    def only_to_relay(port: int) -> Passes:
        ports.append(port)
        return lambda target: udp and target[1] in (port, port + 1)

    async with two_members(tmp_path, only_to_relay, server) as (oak, elm):
        here, there = await asyncio.gather(oak.link(elm), elm.link(oak))
        stream = await here.open(7)
        await stream.send(b"before")
        assert await stream.receive(10) == b"before"
        await server.stop()
        await stream.send(b"x" * 8192)
        await asyncio.sleep(1.0)
        assert (await server.start()).udp_ports[0] == ports[0]
        assert await stream.receive(14) == b"x" * 8192  # a second later it would be taken for dead
        assert (here.path, there.path) == ("relay", "relay")


async def test_relay_when_the_session_has_another_rendezvous_then_links_use_the_one_that_is_there(
    tmp_path: Path,
) -> None:
    old, new = ReachedServer(), ReachedServer()
    ports: list[int] = []
    direct = True

    def passes(port: int) -> Passes:
        return lambda target: direct or target[1] in ports

    async def elsewhere() -> AsyncGenerator[OfferedRendezvous, None]:
        yield OfferedRendezvous(Place(HOST, serving.port, serving.fingerprint), at_host=False)

    serving = await new.start()
    ports += serving.udp_ports
    async with new.running, two_members(tmp_path, passes, old, elsewhere) as (oak, elm):
        here, there = await asyncio.gather(oak.link(elm), elm.link(oak))
        moved = asyncio.Event(), asyncio.Event()
        following = [
            asyncio.create_task(one.follow_moves(peer, event))
            for one, peer, event in ((oak, elm, moved[0]), (elm, oak, moved[1]))
        ]
        stream = await here.open(7)
        await old.stop()
        await old.start()  # without notes it has forgotten the room
        await asyncio.wait_for(asyncio.gather(*(event.wait() for event in moved)), 20)
        direct = False
        await stream.send(b"after")
        assert await stream.receive(14) == b"after"
        assert (here.path, there.path) == ("relay", "relay")
        for task in following:
            task.cancel()
        await asyncio.wait(following)


async def test_link_when_nothing_gets_through_then_the_error_tells_of_every_candidate_and_of_the_relay(
    tmp_path: Path,
) -> None:
    async with two_members(tmp_path, lambda port: lambda target: False) as (oak, elm):
        with pytest.raises(Unavailable) as caught:
            await oak.link(elm, deadline_s=1.0)
        said = str(caught.value)
        assert "no link to elm within 1 s" in said
        assert f"127.0.0.1 port {elm.endpoint.address[1]} (host)" in said
        assert "the relay does not answer" in said


async def test_nat_when_asked_for_then_it_is_what_the_rendezvous_sees(tmp_path: Path) -> None:
    async with two_members(tmp_path, lambda port: lambda target: True) as (oak, _):
        nat = await oak.reaching.nat()
        assert nat.udp
        assert nat.is_translated is False
        assert nat.rtt_s is not None
        assert [candidate.target for candidate in oak.reaching.candidates()] == [oak.endpoint.address]
