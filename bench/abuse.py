"""What an honest session sees of a rendezvous that strangers flood, and what they take of its memory and descriptors.

    python bench/abuse.py [--seconds 5] [--only NAME] [--json] [--record]

One `kafila-rendezvous` with TLS on loopback, as anybody would run it. First it is quiet, then each flood runs beside
the same honest calls; every address of 127.0.0.0/8 counts as another stranger, so this needs Linux. Floods run in a
process of their own, bounded in number and time. Printed for each, in milliseconds: p50 and p99 of opening a room
(connecting included), joining it, one mail from post to arrival, and one datagram there and back over the relay; honest
rounds that failed; the server's descriptors and memory at most. Then how long until both are near where they began.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TypeVar

import grpc

from kafila_proto import rendezvous_pb2 as pb

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.abuse_floods import FLOODS, bound_pair  # noqa: E402
from bench.record import add_record_option, record  # noqa: E402
from kafila_rendezvous.certificate import KeyPair, keep_key_pair  # noqa: E402
from tests.hostile.rendezvous_world import Target, coming_from, room_for_descriptors, stub_of, target, tls_channel  # noqa: E402
from tests.rendezvous.relay_world import TokenHolder  # noqa: E402

ROUND_S = 20.0
MOST_ROUNDS_PER_S = 20
RETURN_S = 60.0  # until memory and descriptors have to be back
DESCRIPTORS = 4096
DESCRIPTORS_SLACK, MEMORY_SLACK = 10, 64 << 20  # the first flood grows some tables, and what is loaded, for good
Reply = TypeVar("Reply")
PARTS = ("create", "join", "mail", "relay")


@dataclass
class Seen:
    """Of one flood: times in seconds by part, and what failed."""

    name: str
    times: dict[str, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})
    failed: int = 0
    descriptors: int = 0
    resident_bytes: int = 0

    def figures(self) -> dict[str, float]:
        said: dict[str, float] = {"failed": self.failed, "rounds": len(self.times["mail"])}
        for part, times in self.times.items():
            if times:
                said[f"{part}_p50_s"] = median(times)
                said[f"{part}_p99_s"] = sorted(times)[int(0.99 * (len(times) - 1))]
        return {**said, "descriptors": self.descriptors, "resident_mb": self.resident_bytes / 1e6}

    def line(self) -> str:
        said = self.figures()
        parts = "  ".join(
            f"{1e3 * said.get(f'{part}_p50_s', float('nan')):7.1f} {1e3 * said.get(f'{part}_p99_s', float('nan')):7.1f}"
            for part in PARTS
        )
        return f"{self.name:<18}{parts}{self.failed:8d}{self.descriptors:8d}{said['resident_mb']:8.0f}"


class Honest:
    """Sessions of two, one after the other, each at an address of its own."""

    def __init__(self, target: Target, pair: KeyPair) -> None:
        self._target, self._pair = target, pair
        self._rounds = 0

    async def watch(self, seen: Seen, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            self._rounds += 1
            try:
                async with asyncio.timeout(ROUND_S):
                    await self._round(seen, f"127.1.{self._rounds // 250}.{1 + self._rounds % 250}")
            except (grpc.aio.AioRpcError, TimeoutError, OSError):
                seen.failed += 1
            seen.descriptors = max(seen.descriptors, self._target.descriptors())
            seen.resident_bytes = max(seen.resident_bytes, self._target.resident_bytes())
            await asyncio.sleep(max(0.0, now + 1 / MOST_ROUNDS_PER_S - time.monotonic()))

    async def _round(self, seen: Seen, host: str) -> None:
        async with (
            coming_from(host, self._target.port) as port,
            tls_channel(port, self._pair) as mine,
            tls_channel(port, self._pair) as theirs,
        ):
            one, other = stub_of(mine), stub_of(theirs)
            room = await _timed(seen, "create", one.Create(pb.CreateRequest(protocol=1)))
            guest = await _timed(seen, "join", other.Join(pb.JoinRequest(protocol=1, room=room.room)))
            stream = other.Attend(pb.AttendRequest(room=room.room, mailbox=guest.mailbox, secret=guest.secret))
            await stream.read()
            post = pb.PostRequest(room=room.room, mailbox=1, secret=room.secret, to=[guest.mailbox], body=bytes(2000))
            began = time.monotonic()
            await one.Post(post)
            await stream.read()
            seen.times["mail"].append(time.monotonic() - began)
            tokens = []
            for mailbox, secret, peer in ((1, room.secret, guest.mailbox), (guest.mailbox, guest.secret, 1)):
                asked = pb.RelayRequest(room=room.room, mailbox=mailbox, secret=secret, peer=peer)
                reply = await one.Relay(asked)
                tokens.append(TokenHolder(reply.token, reply.key))
            await self._relay(seen, tokens, host)
            await other.Leave(pb.LeaveRequest(room=room.room, mailbox=guest.mailbox, secret=guest.secret))
            await one.Leave(pb.LeaveRequest(room=room.room, mailbox=1, secret=room.secret))

    async def _relay(self, seen: Seen, tokens: list[TokenHolder], host: str) -> None:
        async with bound_pair(self._target.udp_port, tokens, host) as (here, there, number):
            loop = asyncio.get_running_loop()
            datagram = b"\x08" + number + bytes(1200)
            for _ in range(5):
                began = time.monotonic()
                for sender, receiver in ((here, there), (there, here)):
                    await loop.sock_sendto(sender, datagram, ("127.0.0.1", self._target.udp_port))
                    await asyncio.wait_for(loop.sock_recv(receiver, 2048), 1)
                seen.times["relay"].append(time.monotonic() - began)


async def _timed(seen: Seen, part: str, call: Awaitable[Reply]) -> Reply:
    began = time.monotonic()
    reply = await call
    seen.times[part].append(time.monotonic() - began)
    return reply


async def measure(target: Target, pair: KeyPair, folder: Path, names: list[str], seconds: float) -> list[Seen]:
    honest = Honest(target, pair)
    await honest.watch(Seen("warm"), 1.0)
    found = [Seen("quiet")]
    await honest.watch(found[0], seconds)
    print(found[0].line(), flush=True)
    for name in names:
        seen = Seen(name)
        command = (sys.executable, "-m", "bench.abuse_floods", name, target.port, target.udp_port, folder)
        flood = await asyncio.create_subprocess_exec(*map(str, command), cwd=ROOT)
        await asyncio.sleep(2.0)
        await honest.watch(seen, seconds)
        with contextlib.suppress(ProcessLookupError):
            flood.kill()
        await flood.wait()
        print(seen.line(), flush=True)
        found.append(seen)
    return found


def is_back(target: Target, began: tuple[int, int]) -> bool:
    return target.descriptors() <= began[0] + DESCRIPTORS_SLACK and target.resident_bytes() <= began[1] + MEMORY_SLACK


async def returned(has_come: Callable[[], bool]) -> float | None:
    """Seconds until it was; None when it was not within `RETURN_S` and the time that idle mailboxes have."""
    began = time.monotonic()
    while time.monotonic() - began < RETURN_S + 10:
        if has_come():
            return time.monotonic() - began
        await asyncio.sleep(1.0)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of honest calls beside each flood")
    parser.add_argument("--only", choices=FLOODS, help="this flood alone")
    parser.add_argument("--json", action="store_true")
    add_record_option(parser)
    options = parser.parse_args()
    room_for_descriptors()
    names = [options.only] if options.only else list(FLOODS)
    with tempfile.TemporaryDirectory() as name, target(Path(name), descriptors=DESCRIPTORS, tls=True) as attacked:
        folder = Path(name)
        pair = keep_key_pair(folder)
        heads = "  ".join(f"{part:>7} {'p99':>7}" for part in PARTS)
        print(f"{'flood':<18}{heads}{'failed':>8}{'descr.':>8}{'MB':>8}", flush=True)
        began = (attacked.descriptors(), attacked.resident_bytes())
        found = asyncio.run(measure(attacked, pair, folder, names, options.seconds))
        back_s = asyncio.run(returned(lambda: is_back(attacked, began)))
        ended = (attacked.descriptors(), attacked.resident_bytes())
    took = "not back" if back_s is None else f"back after {back_s:.0f} s"
    print(f"descriptors {began[0]} → {ended[0]}, {took}; memory {began[1] / 1e6:.0f} → {ended[1] / 1e6:.0f} MB")
    figures = {seen.name.replace(" ", "_"): seen.figures() for seen in found}
    if options.json:
        print(json.dumps({"began": began, "ended": ended, "floods": [asdict(seen) for seen in found]}))
    if options.record:
        record("abuse", {**figures, "return_s": back_s})


if __name__ == "__main__":
    main()
