"""The sessions that this machine is in, or comes back to, and the last ones that it was in."""

import asyncio
from collections.abc import Iterator

from kafila_sidecar.errors import Refused
from kafila_sidecar.machine.participation import Participation
from kafila_sidecar.machine.seat import Seat
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.session.calling.calling import Calling
from kafila_sidecar.session.lookup import find_session, session_with_id
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.code import Code

KEPT_CLOSED = 16  # sessions that are over and can still say why


class Sessions:
    """By id, in the order of joining."""

    def __init__(self) -> None:
        self._by_id: dict[str, Seat] = {}
        self._callings: dict[str, Calling] = {}

    def __iter__(self) -> Iterator[Seat]:
        return iter(self._by_id.values())

    def run(self, seat: Seat, calling: Calling, tasks: asyncio.TaskGroup) -> None:
        """One more."""
        self._by_id[seat.id], self._callings[seat.id] = seat, calling
        closed = [key for key, other in self._by_id.items() if not other.is_open]
        for key in closed[: max(0, len(closed) - KEPT_CLOSED)]:
            del self._by_id[key], self._callings[key]
        tasks.create_task(seat.run(), name=f"session {seat.id}")

    def find(self, wanted: str) -> Seat:
        """What a person calls a session; see `find_session`."""
        return find_session(wanted, list(self))

    def with_id(self, wanted: str) -> Seat:
        """The session with this very id, which programs name it by; see `session_with_id`."""
        return session_with_id(wanted, list(self))

    def hosted(self, wanted: str, what: str) -> Participation:
        """An open session that this machine hosts; raises Refused for another's, which can't do `what`, and Unavailable
        for one that it is away from."""
        seat = self.find(wanted)
        seat.check_open()
        session = seat.taken
        if not session.channel.is_host:
            raise Refused(f"only the host, {session.channel.host}, can {what}")
        return session

    def opened_by(self, code: Code) -> Seat | None:
        """The session that a code leads to, if this machine knows the code, and is in contact with it or comes back."""
        return next((seat for seat in self if seat.is_open and seat.knows(code) and seat.is_in_contact()), None)

    def open_with_id(self, wanted: str) -> Seat | None:
        """The session with this id, unless it is over for this machine."""
        seat = self._by_id.get(wanted)
        return seat if seat is not None and seat.is_open else None

    def may_be_at(self, address: RendezvousAddress) -> bool:
        """Whether others may look there for a session of this machine's."""
        return any(seat.is_open and seat.keeper.kept.was_at(address) for seat in self)

    def called(self, datagram: bytes, source: Address) -> bool:
        """Whether a member of one of these sessions calls; it is answered."""
        open_now = [calling for key, calling in self._callings.items() if self.open_with_id(key) is not None]
        return any(calling.receive(datagram, source) for calling in open_now)

    def promised_bytes(self) -> int:
        """What the plans of open sessions gave to this machine and is not in memory yet; what is, counts as taken."""
        return sum(seat.promised_bytes for seat in self if seat.is_open)

    def stop_all(self) -> None:
        """Begins to take leave of every session: this machine comes back to them with its next start."""
        for seat in self:
            seat.stop()

    def moved(self) -> None:
        """This machine's network is another one."""
        for seat in self:
            seat.moved.set()
