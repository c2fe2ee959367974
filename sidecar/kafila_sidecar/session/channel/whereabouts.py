"""Which mailbox each member has in the room where the session is now. No I/O, no clock.

The log names the mailbox that a member had when it came. Since rooms move, that is good in the room of that time only.
"""

from collections.abc import Iterable
from dataclasses import replace

from kafila_proto import ring_pb2
from kafila_sidecar.session.membership.log import LONGEST_LOG
from kafila_sidecar.session.membership.members import Member

MOVES_PER_HOST = 1000
"""Each host counts from where the ones before had to stop, so that no host's number can be in the way of the next one's
moves."""


class Whereabouts:
    """`number` counts the moves; 0 is the room in which the session was founded, or in which this member came."""

    def __init__(self, keeper: str) -> None:
        """`keeper`: who embeds the rendezvous; empty for a server."""
        self.number = 0
        self.keeper = keeper
        self.since = 0  # whoever was admitted by this entry or a later one has the mailbox that it names
        self._highest = 0  # move that was heard of
        self._told: dict[int, tuple[int, int]] = {}  # by the member's entry: number of the move, mailbox there

    def next_number(self, takeovers: int) -> int:
        """Above all moves that were heard of, and all of the hosts before. `takeovers`: as in `Membership`."""
        return max(self._highest, takeovers * MOVES_PER_HOST) + 1

    def mailbox_of(self, member: Member) -> int | None:
        """None while it is not known to have come."""
        number, mailbox = self._told.get(member.index, (0, 0))
        if number == self.number and number:
            return mailbox
        return member.mailbox if member.index >= self.since else None

    def settled(self, members: Iterable[Member]) -> list[Member]:
        """Those who are known to have a mailbox here, with that one."""
        found = ((member, self.mailbox_of(member)) for member in members)
        return [
            member if member.mailbox == mailbox else replace(member, mailbox=mailbox)
            for member, mailbox in found
            if mailbox is not None
        ]

    def heard_of(self, move: ring_pb2.Moved) -> None:
        """A move that may fail, or be followed later."""
        self._highest = max(self._highest, move.number)
        for resident in move.residents:
            self.came(resident.member, move.number, resident.mailbox)

    def came(self, index: int, number: int, mailbox: int) -> None:
        """The member of that entry has this mailbox in the room of that move."""
        if mailbox and index < LONGEST_LOG and number >= self._told.get(index, (0, 0))[0]:
            self._told[index] = number, mailbox

    def moved(self, move: ring_pb2.Moved, host: str) -> None:
        """This member is there too."""
        self.heard_of(move)
        self.number, self.since, self.keeper = move.number, move.since, host if move.at_host else ""

    def residents(self, members: Iterable[Member]) -> list[ring_pb2.Resident]:
        """What is to be told of the present room."""
        return [ring_pb2.Resident(member=one.index, mailbox=one.mailbox) for one in self.settled(members)]
