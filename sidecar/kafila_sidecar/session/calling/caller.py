"""One member's side of calling: asks the others where the session is, answers them, and keeps what it was told. No I/O,
no clock.

Only those who are members, or may be again, are answered; nobody else hears that anybody is there.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.session.calling.line import PairLine, line_to, name_in
from kafila_sidecar.session.keeping.kept import KeptSession
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.membership.seal import Entropy
from kafila_sidecar.session.rendezvous.address import RendezvousAddress, parse_address
from kafila_sidecar.session.rendezvous.code import LARGEST_ROOM

NUMBER_BYTES = 16
BODY_BYTES = 800  # of each call
MOST_SAID = 2  # rooms in one datagram
MOST_LEARNT = 8
KEPT_NUMBERS = 4  # rounds of calls that may still be answered
ANSWER_EVERY_S = 0.2  # to one member at most


@dataclass(frozen=True, slots=True)
class KnownRoom:
    """Where the session's room is, by somebody's word."""

    address: RendezvousAddress
    number: int


@dataclass(frozen=True, slots=True)
class HeardCall:
    """`answer`: what to send back; empty: nothing. `is_in`: who wrote is in the session, and does not look for it."""

    answer: bytes
    is_in: bool


class Caller:
    """`kept` gives what this member knows of the session. Times are seconds of a monotonic clock."""

    def __init__(self, kept: Callable[[], KeptSession], entropy: Entropy) -> None:
        self.learnt: tuple[KnownRoom, ...] = ()  # the latest first
        self.in_use: tuple[KnownRoom, ...] = ()  # by the latest word of one who is in the session
        self._kept = kept
        self._entropy = entropy
        self._lines: dict[bytes, tuple[Member, PairLine]] = {}  # by name
        self._known = 0  # so many of the log's members have a line
        self._numbers: deque[bytes] = deque(maxlen=KEPT_NUMBERS)
        self._answered_at: dict[bytes, float] = {}

    def calls(self, here: Sequence[KnownRoom]) -> list[tuple[bytes, Address]]:
        """To each of the others, wherever it could be reached last. `here`: rooms that this member attends."""
        number = self._entropy(NUMBER_BYTES)
        self._numbers.append(number)
        body = ring_pb2.CallBody(number=number, rooms=_said(here))
        body.padding = bytes(max(0, BODY_BYTES - body.ByteSize()))
        reach = self._kept().reach
        return [
            (line.seal(body, self._entropy), target)
            for member, line in self._all_lines().values()
            if self._may_hear(member)
            for target in reach.get(member.fingerprint, ())
        ]

    def receive(self, datagram: bytes, here: Sequence[KnownRoom], *, is_in: bool, now: float) -> HeardCall:
        """Takes a call or an answer. `is_in`: this member is in the session.

        Raises Denied or InvalidInput for what no member sent.
        """
        member, line = self._line(name_in(datagram))
        if not self._may_hear(member):
            raise Denied(f"{member.name} left the session or was put out, and calls")
        body = line.open(datagram, self._entropy)
        if body.is_answer and body.number not in self._numbers:
            raise Denied(f"{member.name} answers a call that was not made, or long ago")
        rooms = self._learn(body.rooms[:MOST_SAID])
        self.in_use = rooms if body.is_in else self.in_use
        return HeardCall(b"" if body.is_answer else self._answer(line, body, here, is_in, now), body.is_in)

    def _answer(
        self, line: PairLine, call: ring_pb2.CallBody, here: Sequence[KnownRoom], is_in: bool, now: float
    ) -> bytes:
        if now - self._answered_at.get(line.name, now - ANSWER_EVERY_S) < ANSWER_EVERY_S:
            return b""
        self._answered_at[line.name] = now
        answer = ring_pb2.CallBody(number=call.number, is_answer=True, rooms=_said(here), is_in=is_in)
        return line.seal(answer, self._entropy) if answer.ByteSize() <= call.ByteSize() else b""

    def hear_of(self, room: KnownRoom) -> None:
        """Somebody who may know says that the session is there."""
        self.forget(room)
        self.learnt = (room, *self.learnt)[:MOST_LEARNT]

    def forget(self, room: KnownRoom) -> None:
        """Nobody of the session is there."""
        self.learnt = tuple(one for one in self.learnt if one != room)

    def _learn(self, said: Sequence[ring_pb2.SessionRoom]) -> tuple[KnownRoom, ...]:
        rooms = list[KnownRoom]()
        for one in said:
            if not 1 <= one.room <= LARGEST_ROOM:
                raise InvalidInput(f"somebody says that the session is in room {one.room}: there is none")
            rooms.append(KnownRoom(parse_address(one.address), one.room))
            self.hear_of(rooms[-1])
        return tuple(rooms)

    def _may_hear(self, member: Member) -> bool:
        return self._kept().log.may_return(member)

    def _line(self, name: bytes) -> tuple[Member, PairLine]:
        try:
            return self._all_lines()[name]
        except KeyError:
            raise Denied("a stranger calls") from None

    def _all_lines(self) -> dict[bytes, tuple[Member, PairLine]]:
        kept = self._kept()
        known = kept.log.known
        for member in known[self._known :]:
            if member.fingerprint != kept.identity.fingerprint:
                line = line_to(kept.log.session, kept.identity, member)
                self._lines[line.name] = member, line
        self._known = len(known)
        return self._lines


def _said(rooms: Sequence[KnownRoom]) -> list[ring_pb2.SessionRoom]:
    return [ring_pb2.SessionRoom(address=str(room.address), room=room.number) for room in rooms[:MOST_SAID]]
