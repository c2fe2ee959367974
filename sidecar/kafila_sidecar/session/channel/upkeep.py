"""What a member does about the membership: remove, lock, vote, take over, catch up. No I/O, no clock.

Each call changes the replica and returns what to send to whom, and what happened here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafila_proto import ring_pb2
from kafila_sidecar.session.channel.events import Doubted, Event, MessageFrom
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.membership.members import Member


@dataclass(frozen=True, slots=True)
class Letter:
    """A sealed message for these members."""

    readers: tuple[Member, ...]
    sealed: bytes


@dataclass(frozen=True, slots=True)
class Acts:
    """To be carried out in this order: letters, then events."""

    letters: list[Letter] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __add__(self, other: "Acts") -> "Acts":
        return Acts(self.letters + other.letters, self.events + other.events)


class Upkeep:
    """One member's."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._asked_at = 0  # how long the log was when we last said that we are behind

    def write(self, control: ring_pb2.Control) -> Acts:
        """To all others. Raises InvalidInput when it is too large."""
        return Acts([Letter(self._replica.others, self._replica.write(control))])

    def remove(self, name: str, reason: str) -> Acts:
        """Removes a member, which is told too; raises as `Upkeep.remove` does."""
        others = self._replica.others
        return self._entries_for(others, self._replica.remove(name, reason))

    def lock(self, locked: bool) -> Acts:
        """Raises as `Upkeep.lock` does."""
        self._replica.lock(locked)
        return self._entries_for(self._replica.others, [])

    def admitted(self, others: tuple[Member, ...], events: list[Event]) -> Acts:
        """Tells the others, as they were before, who was admitted."""
        return self._entries_for(others, events)

    def vote(self, successor: str) -> Acts:
        """The host, and who joined before this successor, are lost to this member."""
        sealed = self._replica.vote(successor)
        if sealed is None:
            return Acts()
        others = self._replica.others
        # A vote is for one place in the log, so that the others have to be there too.
        return Acts([Letter(others, self._replica.write_entries()), Letter(others, sealed)]) + self.settle([])

    def settle(self, heard: Iterable[Event]) -> Acts:
        """What the latest messages call for."""
        acts = Acts()
        for one in heard:
            match one:
                case Doubted():
                    acts += self.write(self._replica.standing)
                case MessageFrom(sender, control) if control.HasField("goodbye") and self._replica.is_host:
                    acts += self.remove(sender, "left")
        return acts + self._take_over() + self._vote_again() + self._catch_up()

    def _take_over(self) -> Acts:
        others = self._replica.others
        events = self._replica.take_over()
        return self._entries_for(others, events) if events else Acts()

    def _vote_again(self) -> Acts:
        again = self._replica.vote_again()
        return Acts([Letter(self._replica.others, again)]) if again is not None else Acts()

    def _catch_up(self) -> Acts:
        """Tells who is behind, and asks when this member is."""
        acts = Acts([Letter((member,), sealed) for member, sealed in self._replica.take_letters()])
        if self._replica.is_behind and self._asked_at != len(self._replica.log):
            self._asked_at = len(self._replica.log)
            acts += self.write(ring_pb2.Control())  # whoever reads it sees how long our log is
        return acts

    def _entries_for(self, readers: tuple[Member, ...], events: list[Event]) -> Acts:
        return Acts([Letter(readers, self._replica.write_entries())], events)
