"""How long three members need from the complete roster until all hops of their ring stand.

    python bench/formation.py [--rounds 7] [--json] [--record]

Real rendezvous, real admission, real links over loopback, in this process; no model. Four cases: all direct and all
relayed, at no delay and at 100 ms round trip. Delay is put on in this process: each member's datagrams are held back
for half a round trip, and a proxy does the same to its TCP connection. Relayed: datagrams from member to member are
dropped. Printed: medians over the rounds of the whole, and of its parts as one link sees them (they overlap):

    classify    until a member knows its NAT
    introduce   until it knows where its neighbours are
    punch       from wanting a link until a path stands
    handshake   from then until both ends know that the link stands
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median

from kafila_proto import ring_pb2

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.record import add_record_option, record  # noqa: E402
from kafila_rendezvous.config import RendezvousConfig  # noqa: E402
from kafila_rendezvous.server import serve  # noqa: E402
from kafila_sidecar.machine.reaching import Reaching  # noqa: E402
from kafila_sidecar.net.candidates import Address, Interface, from_proto, to_proto  # noqa: E402
from kafila_sidecar.net.link.endpoint import Endpoint  # noqa: E402
from kafila_sidecar.net.link.link import Link  # noqa: E402
from kafila_sidecar.net.nat.behaviour import Nat, StunServer  # noqa: E402
from kafila_sidecar.net.nat.classify import OwnSocket, classify  # noqa: E402
from kafila_sidecar.net.nat.monitor import NetworkMonitor  # noqa: E402
from kafila_sidecar.net.udp import Received, UdpSocket, open_socket  # noqa: E402
from kafila_sidecar.session import join, opening  # noqa: E402
from kafila_sidecar.session.admission.versions import Versions  # noqa: E402
from kafila_sidecar.session.channel.channel import Channel  # noqa: E402
from kafila_sidecar.session.channel.events import MessageFrom  # noqa: E402
from kafila_sidecar.session.rendezvous.address import RendezvousAddress as Place  # noqa: E402
from tests.sidecar.net.people import ignore  # noqa: E402

NAMES = ("ada", "bob", "cyd")
HOST = "127.0.0.1"
WANTED_S = {("direct", 0.0): 0.5, ("direct", 0.05): 1.0, ("relay", 0.0): 1.0, ("relay", 0.05): 2.0}
PAPER_S = {"direct": 1.3, "relay": 20.8}
DEADLINE_S = 20.0


class Delayed:
    """A UDP socket on a slow line: what it sends comes later, and so does what the rendezvous sends to it."""

    def __init__(self, deliver: Callable[[list[Received]], None], delay_s: float, only: int | None) -> None:
        """`only`: the one port that datagrams get through to; None: every port."""
        self.rendezvous_ports: set[int] = set()
        self._deliver, self._delay_s, self._only = deliver, delay_s, only
        self._loop = asyncio.get_running_loop()
        self._udp = UdpSocket(open_socket(HOST, 0), self._receive)
        self.takes_ipv6, self.forbids_fragments = self._udp.takes_ipv6, self._udp.forbids_fragments
        self.address = self._udp.address

    def send(self, datagrams: Sequence[bytes], target: Address) -> None:
        if self._only is not None and target[1] not in (self._only, self._only + 1):
            return
        if self._delay_s:
            self._loop.call_later(self._delay_s, self._udp.send, list(datagrams), target)
        else:
            self._udp.send(datagrams, target)

    def close(self) -> None:
        self._udp.close()

    def _receive(self, batch: list[Received]) -> None:
        slow = [one for one in batch if self._delay_s and one[1][1] in self.rendezvous_ports]
        if slow:
            self._loop.call_later(self._delay_s, self._deliver, slow)
        if quick := [one for one in batch if one not in slow]:
            self._deliver(quick)


@dataclass
class Line:
    """One member's line: a socket for the endpoint, and further ones, all alike."""

    name: str
    delay_s: float
    udp_port: int
    relayed: bool

    def open(self, port: int, deliver: Callable[[list[Received]], None]) -> Delayed:
        sock = Delayed(deliver, self.delay_s, self.udp_port if self.relayed else None)
        sock.rendezvous_ports = {self.udp_port, self.udp_port + 1}
        return sock

    def interfaces(self) -> list[Interface]:
        return [Interface("lo", True, (HOST,))]


@dataclass
class Times:
    """Seconds of one round; the parts are medians over members or links."""

    whole: float
    classify: float
    introduce: float
    punch: float
    handshake: float


class FormingMember:
    """A member of a session, from the complete roster until its links stand."""

    def __init__(self, channel: Channel, line: Line) -> None:
        self.channel = channel
        self.classified: asyncio.Task[float]
        self.introduced: list[float] = []
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._endpoint = Endpoint(lambda deliver: line.open(0, deliver), host=HOST, interfaces=line.interfaces)
        monitor = NetworkMonitor(self._endpoint, interfaces=line.interfaces, ask=self._ask)
        self._reaching = Reaching(
            channel=channel, endpoint=self._endpoint, monitor=monitor, further=(), on_stream=ignore
        )
        self._tasks: list[asyncio.Task[None]] = [asyncio.create_task(channel.run())]
        self._known = {name: self._loop.create_future() for name in NAMES if name != channel.self_name}

    async def form(self) -> list[Link]:
        """Introduces itself, classifies meanwhile, links to both neighbours."""
        start = self._loop.time()
        self._tasks.append(asyncio.create_task(self._listen()))
        self._reaching.start(lambda: self._tasks.append(asyncio.create_task(self._introduce())))
        self.classified = asyncio.create_task(self._classify(start))
        await self._introduce()
        return await asyncio.gather(*(self._link(name, start) for name in self._known))

    async def close(self) -> None:
        self._reaching.stop()
        await self._endpoint.close()
        await self.channel.leave()
        await asyncio.wait(self._tasks)

    async def _link(self, name: str, start: float) -> Link:
        candidates = from_proto(await self._known[name])
        self.introduced.append(self._loop.time() - start)
        return await self._reaching.dial(name, candidates, DEADLINE_S)

    async def _introduce(self) -> None:
        await self.channel.send(ring_pb2.Control(candidates=to_proto(self._reaching.candidates())))

    async def _listen(self) -> None:
        async for news in self.channel.events():
            if isinstance(news, MessageFrom) and news.control.HasField("candidates"):
                known = self._known[news.sender]
                if not known.done():
                    known.set_result(news.control.candidates)
                self._reaching.announced(news.sender, from_proto(news.control.candidates))

    async def _classify(self, start: float) -> float:
        await self._reaching.nat()
        return self._loop.time() - start

    async def _ask(self, own: OwnSocket, servers: Sequence[StunServer]) -> Nat:
        return await classify(
            own, servers, interfaces=self._line.interfaces, open_spare=lambda deliver: self._line.open(0, deliver)
        )


async def one_round(path: str, delay_s: float) -> Times:
    with tempfile.TemporaryDirectory(prefix="kafila-bench-") as folder:
        async with serve(RendezvousConfig(host=HOST, port=0)) as serving, proxied(serving.port, delay_s) as port:
            line = Line("", delay_s, serving.udp_ports[0], relayed=path == "relay")
            members = await roster(Place(HOST, port, insecure=True), Path(folder), line)
            try:
                return await formed(members, path)
            finally:
                for member in members:
                    await member.close()


async def formed(members: Sequence[FormingMember], path: str) -> Times:
    loop = asyncio.get_running_loop()
    start = loop.time()
    links = [link for links in await asyncio.gather(*(member.form() for member in members)) for link in links]
    whole = loop.time() - start
    if any(link.path != path for link in links):
        raise RuntimeError(f"not all links are {path}: {[link.path for link in links]}")
    await asyncio.gather(*(member.classified for member in members))
    return Times(
        whole,
        classify=median(member.classified.result() for member in members),
        introduce=median(max(member.introduced) for member in members),
        punch=median(link.punch_s for link in links),
        handshake=median(link.handshake_s for link in links),
    )


async def roster(place: Place, folder: Path, line: Line) -> list[FormingMember]:
    """Three members, admitted by code, each of which knows all three."""
    terms = ring_pb2.SessionTerms(model="none", revision="none", members_wanted=3, context_tokens=1, concurrency=1)
    channel = await join.found(rendezvous=place, terms=terms, name=NAMES[0], local=local(folder / NAMES[0]))
    members = [FormingMember(channel, line)]
    assert channel.code is not None
    for name in NAMES[1:]:
        approach = await join.approach(code=channel.code, name=name, local=local(folder / name))
        members.append(FormingMember(await approach.enrol(), line))
    while any(len(member.channel.members) < len(NAMES) for member in members):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return members


def local(folder: Path) -> opening.Local:
    folder.mkdir()
    return opening.Local(folder, Versions("bench", planner=1, mlx_lm="bench"))


@contextlib.asynccontextmanager
async def proxied(port: int, delay_s: float) -> AsyncIterator[int]:
    """A TCP proxy that holds everything back for half a round trip; its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(65536):
            loop.call_later(delay_s, writer.write, data)

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(delay_s)
        to_reader, to_writer = await asyncio.open_connection(HOST, port)
        for one in (copy(reader, to_writer), copy(to_reader, writer)):
            tasks.add(asyncio.create_task(one))

    server = await asyncio.start_server(serve_one, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_record_option(parser)
    options = parser.parse_args()
    results = {}
    for (path, delay_s), wanted_s in WANTED_S.items():
        rounds = [asyncio.run(one_round(path, delay_s)) for _ in range(options.rounds)]
        parts = {part: median(getattr(one, part) for one in rounds) for part in (field.name for field in fields(Times))}
        results[f"{path} at {2000 * delay_s:.0f} ms"] = {**parts, "wanted": wanted_s, "paper": PAPER_S[path]}
    if options.record:
        record("formation", {"rounds": options.rounds, **results})
    if options.json:
        print(json.dumps(results))
        return
    columns = ("whole", "wanted", "paper", "classify", "introduce", "punch", "handshake")
    print(f"seconds until all hops stand, medians of {options.rounds}\n{'':17}" + "".join(f"{c:>11}" for c in columns))
    for name, row in results.items():
        print(f"{name:17}" + "".join(f"{row[column]:11.3f}" for column in columns))


if __name__ == "__main__":
    main()
