"""Channels on loopback: a rendezvous, members that run, their news, and a wire that can be cut."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kafila_proto import ring_pb2

from rendezvous.certificate import make_key_pair
from rendezvous.config import Config
from rendezvous.server import serve
from sidecar.errors import KafilaError
from sidecar.session.address import Address
from sidecar.session.channel import Channel
from sidecar.session.client import Local, approach, found
from sidecar.session.code import Code
from sidecar.session.news import News

PATIENCE_S = 10.0
VERSION, MLX_LM = "1.0", "2.0"
TERMS = ring_pb2.SessionTerms(model="m", members_wanted=3)

Kind = TypeVar("Kind")


@contextlib.asynccontextmanager
async def rendezvous(*, tls: bool) -> AsyncIterator[Address]:
    async with serve(Config(port=0, key_pair=make_key_pair() if tls else None)) as serving:
        yield Address("127.0.0.1", serving.port, serving.fingerprint, insecure=not tls)


@dataclass
class Person:
    """A channel whose run and listener are tasks of the test."""

    channel: Channel
    run: asyncio.Task[None]
    heard: list[News] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self) -> None:
        async for news in self.channel.events():
            self.heard.append(news)
            self.changed.set()

    async def hear(self, kind: type[Kind], which: Callable[[Kind], bool] = lambda _: True) -> Kind:
        """Waits for the first news of a kind, and takes it off the list."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for place, news in enumerate(self.heard):
                    if isinstance(news, kind) and which(news):
                        del self.heard[place]
                        return news
                self.changed.clear()
                await self.changed.wait()


class Stage:
    """Starts people, and ends them when the test is over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._people: list[tuple[Person, asyncio.Task[None]]] = []

    async def host(self, address: Address, may_admit: Callable[[], KafilaError | None] = lambda: None) -> Person:
        channel = await found(
            rendezvous=address,
            terms=TERMS,
            name="host",
            local=Local(self._folder / "host", VERSION, MLX_LM, may_admit),
        )
        return self._start(channel)

    async def join(self, code: Code | None, name: str, version: str = VERSION) -> Person:
        assert code is not None
        offer = await approach(code=code, name=name)
        channel = await offer.enrol(Local(self._folder / name, version, MLX_LM, lambda: None))
        return self._start(channel)

    def _start(self, channel: Channel) -> Person:
        person = Person(channel, asyncio.create_task(channel.run()))
        self._people.append((person, asyncio.create_task(person.listen())))
        return person

    async def end(self) -> None:
        for person, listener in self._people:
            await person.channel.aclose()
            await asyncio.wait([person.run, listener], timeout=PATIENCE_S)
            assert person.run.done()
            assert listener.done()


class Wire:
    """A TCP forwarder in front of a server, which can be cut."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._open: set[asyncio.StreamWriter] = set()
        self.intact = True

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Address]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield Address("127.0.0.1", port, self._target.fingerprint, self._target.insecure)
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        """Breaks all connections, and new ones until `intact` is set again."""
        self.intact = False
        for writer in self._open:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.intact:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(self._target.host, self._target.port)
        self._open |= {writer, far_writer}
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pipe(reader, far_writer))
            group.create_task(self._pipe(far_reader, writer))
        self._open -= {writer, far_writer}

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.transport.abort()
