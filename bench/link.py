"""One link between two processes on this machine: set-up, round trips, and bulk in one direction.

    python bench/link.py [--json] [--record]

Prints the median time to set a link up, median and 99th percentile of a message there and back, and MB/s of 8 MB
messages. Loopback has no delay, so this is what the code itself costs. Then, in memory and in turns with a connection
whose packets aioquic builds and reads, all of them: how long the packets of a frame take at the end that sends it and
at the one that gets it, and how many times as long by aioquic; in the datagrams of an Ethernet, and in large ones.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from kafila_proto import ring_pb2
from kafila_sidecar.net.candidates import from_proto, to_proto
from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.net.quic.connection import PinnedConnection
from kafila_sidecar.session.membership.identity import Identity, make_identity

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.record import add_record_option, record
from tests.sidecar.net.quic.long_way import LongWay, connections_of
from tests.sidecar.net.quic.test_neighbour import established
from tests.sidecar.net.wire import DatagramWire

SESSION, KEY = os.urandom(16), b"not secret: this is a benchmark."
LINKS = 7
SMALL_BYTES, FRAME_BYTES, BULK_BYTES = 64, 8192, 8 << 20
ROUND_TRIPS, BULK_MESSAGES = 500, 8
ECHO, SINK = 1, 2
DATAGRAMS_BYTES = (1452, 8900)
FRAMES = 600
PAUSE_S = (
    0.004  # between two frames, on the clock of the ends in memory: half of them are acknowledged by one that goes
)


async def serve(stream: Stream) -> None:
    """Echoes messages, or swallows them and says when the last one has come."""
    while (message := await stream.receive(30)) is not None:
        if stream.kind == ECHO:
            await stream.send(message)
    if stream.kind == SINK:
        await stream.send(b"all here")


async def connect(endpoint: Endpoint, pipe: Connection, me: Identity) -> Link:
    pipe.send((to_proto(endpoint.candidates()).SerializeToString(), me.fingerprint))
    candidates, fingerprint = await asyncio.to_thread(pipe.recv)
    return await endpoint.connect(
        session=SESSION,
        key=KEY,
        me=me,
        peer_name="other",
        peer_fingerprint=fingerprint,
        candidates=from_proto(ring_pb2.Candidates.FromString(candidates)),
        deadline_s=10,
        on_stream=serve,
    )


async def other_side(pipe: Connection) -> None:
    for _ in range(LINKS):
        endpoint = Endpoint.open()
        link = await connect(endpoint, pipe, make_identity())
        await link.closed
        await endpoint.close()


def other_process(pipe: Connection, session: bytes) -> None:
    global SESSION
    SESSION = session
    asyncio.run(other_side(pipe))


async def round_trips(link: Link, size: int) -> list[float]:
    stream, message, taken_s = await link.open(ECHO), os.urandom(size), []
    for _ in range(ROUND_TRIPS):
        start = time.perf_counter()
        await stream.send(message)
        await stream.receive(10)
        taken_s.append(time.perf_counter() - start)
    stream.finish()
    return sorted(taken_s)


async def bulk(link: Link) -> float:
    """Bytes per second."""
    stream, message = await link.open(SINK), os.urandom(BULK_BYTES)
    start = time.perf_counter()
    for _ in range(BULK_MESSAGES):
        await stream.send(message)
    stream.finish()
    await stream.receive(60)
    return BULK_BYTES * BULK_MESSAGES / (time.perf_counter() - start)


async def measure(pipe: Connection) -> dict[str, float]:
    setups_s = []
    for i in range(LINKS):
        endpoint, me = Endpoint.open(), make_identity()
        start = time.perf_counter()
        link = await connect(endpoint, pipe, me)
        setups_s.append(time.perf_counter() - start)
        if i == LINKS - 1:
            small_s, frame_s = await round_trips(link, SMALL_BYTES), await round_trips(link, FRAME_BYTES)
            rate = await bulk(link)
        await asyncio.sleep(0.05)  # the other end is ready too
        await endpoint.close()
    return {
        "setup_s": statistics.median(setups_s),
        "round_trip_64B_s": statistics.median(small_s),
        "round_trip_8KB_s": statistics.median(frame_s),
        "round_trip_8KB_p99_s": frame_s[int(len(frame_s) * 0.99)],
        "bulk_MB_per_s": rate / 1e6,
    }


class EndsInMemory:
    """Two ends of one link, whose connections are of one kind; frames go there and back."""

    def __init__(self, kind: type[PinnedConnection], datagram_bytes: int) -> None:
        self.sending_s: list[float] = []
        self.getting_s: list[float] = []
        with connections_of(kind):
            self._wire = DatagramWire(delay_s=0.0005)
            self._ends = established(self._wire)
            for end in self._ends:
                end.core.follow_path(is_new=False, datagram_bytes=datagram_bytes)
            self._wire.run(1)

    def frame(self, number: int, message: bytes) -> None:
        here, there = self._ends if number % 2 else reversed(self._ends)
        connection, now = here.core.connection, self._wire.now
        start = time.perf_counter()
        connection.send_stream_data(1 - number % 2, message)  # the dialler has the even ones
        datagrams = here.core.datagrams(now)
        sent = time.perf_counter()
        for datagram in datagrams:
            there.core.receive(datagram, now, 0.0)
        while (event := there.core.next_event()) is not None:
            there.events.append(event)
        there.core.has_to_send(now)
        got = time.perf_counter()
        self.sending_s.append(sent - start)
        self.getting_s.append(got - sent)
        for end in self._ends:
            end.pump()
        self._wire.run(PAUSE_S)


def packets() -> dict[str, float]:
    """Of a frame, in this process alone."""
    results, message = {}, os.urandom(FRAME_BYTES)
    for size in DATAGRAMS_BYTES:
        ours, aioquics = EndsInMemory(PinnedConnection, size), EndsInMemory(LongWay, size)
        for number in range(FRAMES):
            ours.frame(number, message)
            aioquics.frame(number, message)
        for name, here, beside in (
            ("sent", ours.sending_s, aioquics.sending_s),
            ("got", ours.getting_s, aioquics.getting_s),
        ):
            results[f"frame_{name}_in_{size}B_s"] = statistics.median(here)
            results[f"frame_{name}_in_{size}B_by_aioquic_times"] = statistics.median(beside) / statistics.median(here)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_record_option(parser)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    other = context.Process(target=other_process, args=(there, SESSION))
    other.start()
    results = asyncio.run(measure(here))
    other.join(10)
    results |= packets()
    if arguments.record:
        record("link", results)
    if arguments.json:
        print(json.dumps(results))
        return
    for name, value in results.items():
        print(
            f"{name:36} {value * 1e3:9.3f} ms"
            if name.endswith("_s") and "MB" not in name
            else f"{name:36} {value:9.2f}"
        )


if __name__ == "__main__":
    main()
