"""Channels on loopback: a rendezvous, members that run, their events, and a wire that can be cut."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kafila_proto import ring_pb2
from kafila_rendezvous.certificate import make_key_pair
from kafila_rendezvous.config import RendezvousConfig, RendezvousLimits
from kafila_rendezvous.server import serve
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.channel.events import Event
from kafila_sidecar.session.join import Approach, approach, found
from kafila_sidecar.session.opening import JoinDeadlines, Local
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.session.rendezvous.elsewhere import Elsewhere, nowhere

PATIENCE_S = 10.0
PATIENT = JoinDeadlines()
VERSIONS = Versions("1.0", planner=1, mlx_lm="2.0")
TERMS = ring_pb2.SessionTerms(model="m")  # for as many as like

Kind = TypeVar("Kind")


@contextlib.asynccontextmanager
async def rendezvous(*, tls: bool, places: int = 128) -> AsyncIterator[RendezvousAddress]:
    """`places`: mailboxes in a room."""
    limits = RendezvousLimits(mailboxes_per_room=places)
    async with serve(RendezvousConfig(port=0, key_pair=make_key_pair() if tls else None, limits=limits)) as serving:
        yield RendezvousAddress("127.0.0.1", serving.port, serving.fingerprint, insecure=not tls)


async def knock(code: Code, name: str) -> Approach:
    """Proves a code, and may join."""
    return await approach(code=code, name=name, local=Local(Path("unused"), VERSIONS))


@dataclass
class ChannelPerson:
    """A channel whose run and listener are tasks of the test."""

    channel: Channel
    run: asyncio.Task[None]
    heard: list[Event] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self) -> None:
        async for event in self.channel.events():
            self.heard.append(event)
            self.changed.set()

    async def hear(self, kind: type[Kind], which: Callable[[Kind], bool] = lambda _: True) -> Kind:
        """Waits for the first event of a kind, and takes it off the list."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for place, event in enumerate(self.heard):
                    if isinstance(event, kind) and which(event):
                        del self.heard[place]
                        return event
                self.changed.clear()
                await self.changed.wait()


class Company:
    """Starts people, and ends them when the test is over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._people: list[tuple[ChannelPerson, asyncio.Task[None]]] = []

    async def host(
        self,
        address: RendezvousAddress,
        terms: ring_pb2.SessionTerms = TERMS,
        deadlines: JoinDeadlines = PATIENT,
        elsewhere: Elsewhere = nowhere,
    ) -> ChannelPerson:
        local = Local(self._folder / "host", VERSIONS, deadlines, elsewhere)
        channel = await found(rendezvous=address, terms=terms, name="host", local=local)
        return self._start(channel)

    async def join(
        self,
        code: Code | None,
        name: str,
        versions: Versions = VERSIONS,
        deadlines: JoinDeadlines = PATIENT,
        elsewhere: Elsewhere = nowhere,
    ) -> ChannelPerson:
        assert code is not None
        offer = await approach(code=code, name=name, local=Local(self._folder / name, versions, deadlines, elsewhere))
        return self._start(await offer.enrol())

    def _start(self, channel: Channel) -> ChannelPerson:
        person = ChannelPerson(channel, asyncio.create_task(channel.run()))
        self._people.append((person, asyncio.create_task(person.listen())))
        return person

    async def end(self) -> None:
        for person, listener in self._people:
            await person.channel.aclose()
            await asyncio.wait([person.run, listener], timeout=PATIENCE_S)
            assert person.run.done()
            assert listener.done()


class CuttableWire:
    """A TCP forwarder in front of a server, which can be cut."""

    def __init__(self, target: RendezvousAddress) -> None:
        self._target = target
        self._open: set[asyncio.StreamWriter] = set()
        self._near: set[asyncio.StreamWriter] = set()
        self._tells_the_server = True
        self.intact = True

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[RendezvousAddress]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield RendezvousAddress("127.0.0.1", port, self._target.fingerprint, self._target.insecure)
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        """Breaks all connections, and new ones until `intact` is set again."""
        self.intact = False
        for writer in self._open:
            writer.transport.abort()

    def go_dead(self) -> None:
        """The same, but the server takes what is open for good, as where a cable was pulled."""
        self.intact = self._tells_the_server = False
        for writer in self._near:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.intact:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(self._target.host, self._target.port)
        self._open |= {writer, far_writer}
        self._near.add(writer)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pipe(reader, far_writer))
            group.create_task(self._pipe(far_reader, writer))
        self._near.discard(writer)
        if self._tells_the_server:
            self._open -= {writer, far_writer}

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        if self._tells_the_server or writer in self._near:
            writer.transport.abort()
