"""One member's view of a session, without I/O and without a clock of its own.

The admitter's decisions (authority.py) arrive here as plain calls, on the admitter itself as on everybody else;
each call returns what the driver has to do. `next_timer` and `handle_timer` bound every wait.
"""

from collections.abc import Sequence

from sidecar.session.events import (
    Accuse,
    Closed,
    Fault,
    FollowerOutput,
    LoadShard,
    OpenLinks,
    Proposal,
    Report,
    Serve,
    StopServing,
)
from sidecar.session.states import State, Step, follow

LINK_SILENT_AND_GONE_S = 1.5  # DESIGN 9: the rendezvous says it left and the link is silent: a death after about 2 s
GONE_WITHOUT_LINK_S = 2.0  # the same for a member that this one has no link to
LINK_SILENT_S = 15.0  # silence alone
REPLAN_DEADLINE_S = 60.0  # how long a member waits for the admitter to plan again
CHECK_EVERY_S = 0.25  # how often silence is looked at


class Machine:
    """Follows the admitter through the states of one session.

    Times are seconds of the driver's monotonic clock, always given as `now`.
    """

    def __init__(self, *, name: str, admitter: str, members: Sequence[str]) -> None:
        self.name = name
        self.admitter = admitter
        self.members: tuple[str, ...] = tuple(members)
        self.state = State.FORMING
        self.proposal: Proposal | None = None
        self.fault: Fault | None = None
        self.loaded = False
        self._departed: dict[str, float] = {}  # since when the rendezvous misses a member
        self._replan_by: float | None = None
        self._fetch_epoch = 0
        self._serve_epoch = 0

    # ---- The admitter's decisions

    def members_changed(self, members: Sequence[str], now: float) -> list[FollowerOutput]:
        """The membership log grew."""
        gone = set(self.members) - set(members)
        self.members = tuple(members)
        for member in gone:
            self._departed.pop(member, None)
        if self.state is State.CLOSED:
            return []
        if self.name not in members:
            return self.close(Fault(self.name, "PERMISSION_DENIED", f"{self.name} was removed from the session"))
        if self.proposal is None or self.state is State.REPLANNING:
            return []
        if gone & {str(stage["member"]) for stage in self.proposal.stages}:
            return self._end_epoch(Fault(min(gone), "UNAVAILABLE", f"{min(gone)} left the session"), now)
        return [self._links()]

    def everybody_came(self) -> list[FollowerOutput]:
        """The admitter has everybody and every measurement, and plans."""
        if self.state is State.FORMING:
            self.state = follow(self.state, Step.COMPLETE)
        return []

    def proposed(self, proposal: Proposal) -> list[FollowerOutput]:
        """A newer plan, checked by the driver. An old one is dropped."""
        if self.state is State.CLOSED or (self.proposal and proposal.epoch <= self.proposal.epoch):
            return []
        outputs: list[FollowerOutput] = []
        if self.state in (State.FETCHING, State.READY):
            outputs.append(StopServing(Fault(self.admitter, "UNAVAILABLE", "the session is being planned again")))
        self.state = follow(self.state, Step.PROPOSED)
        self.proposal, self.loaded, self._replan_by = proposal, False, None
        return [*outputs, self._links(), *self._advance()]

    def may_fetch(self, epoch: int) -> list[FollowerOutput]:
        """All links stand, says the admitter. Its decisions may overtake each other: an early one waits."""
        self._fetch_epoch = max(self._fetch_epoch, epoch)
        return self._advance()

    def may_serve(self, epoch: int) -> list[FollowerOutput]:
        """Every stage is loaded, says the admitter."""
        self._serve_epoch = max(self._serve_epoch, epoch)
        return self._advance()

    def _advance(self) -> list[FollowerOutput]:
        outputs: list[FollowerOutput] = []
        if self.proposal is None:
            return outputs
        epoch = self.proposal.epoch
        if self.state is State.LINKING and self._fetch_epoch == epoch:
            self.state = follow(self.state, Step.LINKED)
            stands_by = self.proposal.stage_of(self.name) is None
            self.loaded = stands_by
            outputs.append(Report(epoch, "ready") if stands_by else LoadShard(self.proposal))
        if self.state is State.FETCHING and self._serve_epoch == epoch:
            self.state = follow(self.state, Step.LOADED)
            outputs.append(Serve(self.proposal))
        return outputs

    # ---- What happens here

    def shard_loaded(self, epoch: int) -> list[FollowerOutput]:
        """This member's stage is in memory."""
        if self.proposal is None or epoch != self.proposal.epoch or self.state is State.CLOSED:
            return []
        self.loaded = True
        return [Report(epoch, "ready")]

    def failed_here(self, code: str, sentence: str) -> list[FollowerOutput]:
        """This member can't go on: everybody hears why, and the session ends here."""
        if self.state is State.CLOSED:
            return []
        fault = Fault(self.name, code, sentence)
        return [Accuse(self._epoch, fault, lost=False), *self.close(fault)]

    def departed(self, member: str, now: float) -> None:
        """The rendezvous says that a member's stream ended. By itself a suspicion; see `handle_timer`."""
        if member in self.members and member != self.name:
            self._departed.setdefault(member, now)

    def returned(self, member: str) -> None:
        """The member attends again."""
        self._departed.pop(member, None)

    # ---- What others say

    def accused(self, fault: Fault, *, lost: bool, now: float) -> list[FollowerOutput]:
        """Somebody says that a member is lost, or that it can't go on."""
        if self.state is State.CLOSED:
            return []
        if not lost:
            return self.close(fault)
        if fault.member == self.name:
            return []  # a false alarm: our own log entry decides, see members_changed
        return self._lost(fault, now)

    def close(self, fault: Fault | None) -> list[FollowerOutput]:
        """Ends the session on this member."""
        if self.state is State.CLOSED:
            return []
        self.state, self.fault = follow(self.state, Step.CLOSE), fault
        stop = fault or Fault(self.name, "UNAVAILABLE", "the session was closed")
        return [StopServing(stop), Closed(fault)]

    # ---- Time

    def next_timer(self, now: float) -> float | None:
        """When `handle_timer` wants to be called next."""
        return None if self.state is State.CLOSED else now + CHECK_EVERY_S

    def handle_timer(self, now: float, silent_s: dict[str, float]) -> list[FollowerOutput]:
        """Judges who is dead. `silent_s`: per linked peer, how long nothing came from it."""
        if self.state is State.CLOSED:
            return []
        if self._replan_by is not None and now >= self._replan_by:
            return self.close(Fault(self.admitter, "UNAVAILABLE", f"{self.admitter} did not plan again in time"))
        for member in self.members:
            if member != self.name and self._is_dead(member, now, silent_s.get(member)):
                fault = Fault(member, "UNAVAILABLE", f"{member} was lost: its machine no longer answers")
                return [*self._lost(fault, now), Accuse(self._epoch, fault, lost=True)]
        return []

    def _is_dead(self, member: str, now: float, silent_s: float | None) -> bool:
        gone_s = now - self._departed[member] if member in self._departed else None
        if silent_s is None:
            return gone_s is not None and gone_s >= GONE_WITHOUT_LINK_S
        return silent_s >= (LINK_SILENT_S if gone_s is None else LINK_SILENT_AND_GONE_S)

    # ---- Shared steps

    @property
    def _epoch(self) -> int:
        return self.proposal.epoch if self.proposal else 0

    def _links(self) -> OpenLinks:
        assert self.proposal is not None
        mine = [edge for edge in self.proposal.edges(self.members) if self.name in edge]
        return OpenLinks(self.proposal.epoch, frozenset(peer for edge in mine for peer in edge if peer != self.name))

    def _lost(self, fault: Fault, now: float) -> list[FollowerOutput]:
        if fault.member not in self.members:
            return []
        self.members = tuple(member for member in self.members if member != fault.member)
        self._departed.pop(fault.member, None)
        if fault.member == self.admitter:
            return self.close(fault)
        if self.proposal is None or self.proposal.stage_of(fault.member) is None:
            return []
        return self._end_epoch(fault, now)

    def _end_epoch(self, fault: Fault, now: float) -> list[FollowerOutput]:
        self.state = follow(self.state, Step.LOST)
        self._replan_by = now + REPLAN_DEADLINE_S
        return [StopServing(fault)]
