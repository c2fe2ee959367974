"""What all sessions of this machine do now, counted together."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import KafilaError
from kafila_sidecar.numbers.standing import PresentNumbers
from kafila_sidecar.session.coordination.edges import FormedLink

KV_DEADLINE_S = 2.0  # for the model's thread, which may be in a long step: then the caches count as nothing


class PartInSession(Protocol):
    """This machine's part in a session that it is in now; `machine.participation.Participation`."""

    @property
    def links(self) -> Mapping[str, FormedLink]: ...
    async def kv_bytes(self) -> int: ...


class SeatInSession(Protocol):
    """`machine.seat.Seat`."""

    @property
    def is_open(self) -> bool: ...
    @property
    def part(self) -> PartInSession | None: ...
    def snapshot(self) -> pb.Session: ...


async def look(seats: Sequence[SeatInSession], *, version: str, relayed_bytes: tuple[int, int]) -> PresentNumbers:
    """Of the sessions that are not over."""
    seats = [seat for seat in seats if seat.is_open]
    shown = [seat.snapshot() for seat in seats]
    parts = [part for seat in seats if (part := seat.part) is not None]
    return PresentNumbers(
        version=version,
        states=Counter(session.state for session in shown),
        present=sum(member.present for session in shown for member in session.members),
        waiting=sum(session.activity.waiting for session in shown),
        answering=sum(map(_answering, shown)),
        sequences=sum(session.active_sequences for session in shown),
        kv_bytes=sum(await asyncio.gather(*map(_kv_bytes, parts))),
        weight_bytes=sum(session.reserved_memory_bytes for session in shown),
        links={peer: (link.path, link.rtt_s) for part in parts for peer, link in part.links.items()},
        relay_sent_bytes=relayed_bytes[0],
        relay_received_bytes=relayed_bytes[1],
    )


def _answering(session: pb.Session) -> int:
    return sum(asking.doing != "waiting" for asking in session.activity.answering)


async def _kv_bytes(part: PartInSession) -> int:
    with suppress(KafilaError, TimeoutError):
        async with asyncio.timeout(KV_DEADLINE_S):
            return await part.kv_bytes()
    return 0
