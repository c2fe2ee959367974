"""One member's view of a session, without I/O and without a clock of its own.

The admitter's decisions (authority.py) arrive here as plain calls, on the admitter itself as on everybody else;
each call returns what the driver has to do. `next_timer` and `handle_timer` bound every wait. Whether somebody is gone
each member judges by itself; who belongs to the session only the membership log says.
"""

from collections.abc import Sequence

from kafila_sidecar.session.coordination.effects import (
    Accuse,
    Ask,
    Closed,
    Fault,
    FollowerOutput,
    LoadShard,
    OpenLinks,
    Proposal,
    Report,
    Serve,
    StopServing,
    Vote,
)
from kafila_sidecar.session.coordination.states import State, Step, follow

LINK_SILENT_AND_GONE_S = 1.5  # DESIGN 9: the rendezvous says it left and the link is silent: a death after about 2 s
ASK_AFTER_S = 0.5  # a member that the rendezvous misses and this one has no link to is asked for by every other way
GONE_WITHOUT_LINK_S = 2.0  # and it is dead if it did not answer by then: the rendezvous' word alone kills nobody
LINK_SILENT_S = 15.0  # silence alone
REPLAN_DEADLINE_S = 60.0  # how long a member waits for the admitter to plan again
TAKEOVER_DEADLINE_S = 30.0  # how long it waits for the others to miss the admitter too, and for a successor
CHECK_EVERY_S = 0.25  # how often silence is looked at


class Follower:
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
        self._asked: set[str] = set()  # for these, meanwhile
        self._heard_at: dict[str, float] = {}
        self._left: set[str] = set()  # said goodbye
        self._gone: set[str] = set()  # left, or does not answer any more
        self._replan_by: float | None = None
        self._takeover_by: float | None = None
        self._fetch_epoch = 0
        self._serve_epoch = 0

    # ---- The admitter's decisions

    def members_changed(self, members: Sequence[str], admitter: str, now: float) -> list[FollowerOutput]:
        """The membership log grew; it may name another admitter now."""
        gone = set(self.members) - set(members)
        former, self.admitter, self.members = self.admitter, admitter, tuple(members)
        self._departed = {member: since for member, since in self._departed.items() if member in members}
        self._heard_at = {member: at for member, at in self._heard_at.items() if member in members}
        self._left, self._gone = self._left & set(members), self._gone & set(members)
        if self.state is State.CLOSED:
            return []
        if self.name not in members:
            return self.close(Fault(self.name, "PERMISSION_DENIED", f"{self.name} was removed from the session"))
        if admitter != former:
            return self._succeeded(former, now)
        if self.proposal is None or self.state is State.REPLANNING:
            return []
        lost = gone & set(self.proposal.plan.order)
        if lost:
            return self._end_epoch(_no_member(min(lost)), now)
        return [self._links()]

    def _succeeded(self, former: str, now: float) -> list[FollowerOutput]:
        """There is a new admitter, which plans anew. While the session forms it just waits on for members."""
        self._takeover_by = None
        outputs: list[FollowerOutput] = []
        if self.state is not State.FORMING:
            outputs += self._end_epoch(_no_member(former), now)
        return outputs + (self._miss_admitter(now) if self.admitter in self._gone else [])

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
        if self.state is State.FETCHING and self._serve_epoch == epoch and self.loaded:
            self.state = follow(self.state, Step.LOADED)
            outputs.append(Serve(self.proposal))
        return outputs

    # ---- What happens here

    def shard_loaded(self, epoch: int) -> list[FollowerOutput]:
        """This member's stage is in memory."""
        if self.proposal is None or epoch != self.proposal.epoch or self.state is State.CLOSED:
            return []
        self.loaded = True
        return [Report(epoch, "ready"), *self._advance()]

    def failed_here(self, code: str, sentence: str) -> list[FollowerOutput]:
        """This member can't go on: everybody hears why, and the session ends here, not for the others."""
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
        self._asked.discard(member)

    # ---- What others say

    def heard(self, member: str, now: float) -> None:
        """A member said something, so it is there, unless that was before its goodbye."""
        if member in self._left or member not in self.members:
            return
        self._heard_at[member] = now
        self._gone.discard(member)
        if member == self.admitter:
            self._takeover_by = None

    def left(self, member: str, now: float) -> list[FollowerOutput]:
        """A member said goodbye."""
        return self.failed(Fault(member, "UNAVAILABLE", f"{member} left the session"), now)

    def failed(self, fault: Fault, now: float) -> list[FollowerOutput]:
        """A member says of itself that it can't go on; the others can."""
        if self.state is State.CLOSED or fault.member not in self.members:
            return []
        self._left.add(fault.member)
        return self._lose(fault, now)

    def is_gone(self, member: str) -> bool:
        """Whether it left, or does not answer any more, as this member sees it."""
        return member in self._gone or member not in self.members

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
        if self._takeover_by is not None and now >= self._takeover_by:
            sentence = f"{self.admitter}, the host, was lost, and too few members missed it for another to take over"
            return self.close(Fault(self.admitter, "UNAVAILABLE", sentence))
        if self._replan_by is not None and now >= self._replan_by:
            return self.close(Fault(self.admitter, "UNAVAILABLE", f"{self.admitter} did not plan again in time"))
        outputs: list[FollowerOutput] = []
        for member in self.members:
            if self._is_due_to_ask(member, now, silent_s.get(member)):
                self._asked.add(member)
                outputs.append(Ask(member))
            if member not in (self.name, *self._gone) and self._is_dead(member, now, silent_s.get(member)):
                fault = Fault(member, "UNAVAILABLE", f"{member} was lost: its machine no longer answers")
                outputs += self._lose(fault, now)
                outputs += [] if member == self.admitter else [Accuse(self._epoch, fault, lost=True)]
        return outputs

    def _is_dead(self, member: str, now: float, silent_s: float | None) -> bool:
        departed_at = self._departed.get(member)
        if silent_s is not None:
            return silent_s >= (LINK_SILENT_S if departed_at is None else LINK_SILENT_AND_GONE_S)
        return departed_at is not None and now - departed_at >= GONE_WITHOUT_LINK_S and not self._answered(member)

    def _is_due_to_ask(self, member: str, now: float, silent_s: float | None) -> bool:
        departed_at = self._departed.get(member)
        due = silent_s is None and departed_at is not None and now - departed_at >= ASK_AFTER_S
        return due and member not in self._asked

    def _answered(self, member: str) -> bool:
        """What came so late was said after the rendezvous missed it."""
        return self._heard_at.get(member, 0.0) >= self._departed[member] + ASK_AFTER_S

    # ---- Shared steps

    @property
    def _epoch(self) -> int:
        return self.proposal.epoch if self.proposal else 0

    def _links(self) -> OpenLinks:
        assert self.proposal is not None
        mine = [edge for edge in self.proposal.edges(self.members) if self.name in edge]
        return OpenLinks(self.proposal.epoch, frozenset(peer for edge in mine for peer in edge if peer != self.name))

    def _lose(self, fault: Fault, now: float) -> list[FollowerOutput]:
        """A member is gone: its stage ends the epoch, and so does the admitter, whom somebody has to succeed."""
        if fault.member in self._gone:
            return []
        self._gone.add(fault.member)
        outputs: list[FollowerOutput] = []
        if self.proposal and (self.proposal.stage_of(fault.member) or fault.member == self.admitter):
            outputs += self._end_epoch(fault, now)
        return outputs + (self._miss_admitter(now) if self.admitter in self._gone else [])

    def _miss_admitter(self, now: float) -> list[FollowerOutput]:
        """Votes for who joined first of those who are there, perhaps this member itself."""
        if self._takeover_by is None:
            self._takeover_by = now + TAKEOVER_DEADLINE_S
        heirs = [member for member in self.members if member != self.admitter and member not in self._gone]
        return [Vote(heirs[0])]

    def _end_epoch(self, fault: Fault, now: float) -> list[FollowerOutput]:
        self.state = follow(self.state, Step.LOST)
        self._replan_by = now + REPLAN_DEADLINE_S
        return [StopServing(fault)]


def _no_member(name: str) -> Fault:
    return Fault(name, "UNAVAILABLE", f"{name} is no longer in the session")
