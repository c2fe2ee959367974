"""One member's view of a session, without I/O and without a clock of its own.

The host's decisions (coordinator.py) arrive here as plain calls, on the host itself as on everybody else;
each call returns what the driver has to do. `next_timer` and `handle_timer` bound every wait. Whether somebody is gone
each member judges by itself (`liveness`); who belongs to the session only the membership log says.
"""

from collections.abc import Mapping, Sequence

from kafila_sidecar.session.coordination.effects import (
    Accuse,
    Ask,
    Closed,
    Complain,
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
from kafila_sidecar.session.coordination.liveness import Died, Liveness, NoSuccessor, Suspected
from kafila_sidecar.session.coordination.states import Ending, State, Step, follow
from kafila_sidecar.session.judging.contact import Contact, ContactLost

REPLAN_DEADLINE_S = 60.0  # how long a member waits for the host to plan again


class Follower:
    """Follows the host through the states of one session. What others say and do the driver tells `liveness` itself.

    Times are seconds of the driver's monotonic clock, always given as `now`.
    """

    def __init__(self, *, name: str, host: str, members: Sequence[str], rendezvous_at: str = "") -> None:
        """`rendezvous_at` is the member that embeds the rendezvous, if one does."""
        self.name = name
        self.host = host
        self.members: tuple[str, ...] = tuple(members)
        self.state = State.FORMING
        self.proposal: Proposal | None = None
        self.fault: Fault | None = None
        self.ending: Ending | None = None  # how it closed, once it has
        self.shortage = ""  # why the session can't be planned yet, in a sentence
        self.loaded = False
        self.liveness = Liveness(me=name, host=host, members=members, rendezvous_at=rendezvous_at)
        self._contact = Contact()
        self._replan_by: float | None = None
        self._voted_for: str | None = None  # since the host is gone
        self._host_fault: Fault | None = None  # what the host said, or showed, of itself
        self._fetch_epoch = 0
        self._serve_epoch = 0

    # ---- The host's decisions

    def members_changed(self, members: Sequence[str], host: str, now: float) -> list[FollowerOutput]:
        """The membership log grew; it may name another host now."""
        gone = set(self.members) - set(members)
        former, self.host, self.members = self.host, host, tuple(members)
        self.liveness.receive_members(members, host, now)
        if self.state is State.CLOSED:
            return []
        if self.name not in members:
            return self.removed("lost")
        if host != former:
            self._contact.receive_word(now)
            return self._succeeded(former, now)
        if self.proposal is None or self.state is State.REPLANNING:
            return []
        lost = gone & set(self.proposal.plan.order)
        if lost:
            return self._end_epoch(_no_member(min(lost)), now)
        return [self._links()]

    def removed(self, reason: str) -> list[FollowerOutput]:
        """The membership log removed this member; the reason is "left", "lost" or "removed"."""
        if reason == "lost":
            sentence = f"the others had not heard {self.name} for too long and went on without it"
            return self.close(Fault(self.name, "UNAVAILABLE", sentence), Ending.LOST)
        ending = Ending.REMOVED if reason == "removed" else Ending.LEFT
        return self.close(Fault(self.name, "PERMISSION_DENIED", f"{self.name} was removed from the session"), ending)

    def _succeeded(self, former: str, now: float) -> list[FollowerOutput]:
        """There is a new host, which plans anew. While the session forms it just waits on for members.

        Whoever died or left before that is a member still: the new host has to hear of it.
        """
        outputs: list[FollowerOutput] = []
        if self.state is not State.FORMING:
            outputs += self._end_epoch(_no_member(former), now)
        gone = [member for member in self.members if member != self.host and self.liveness.is_gone(member)]
        return [*outputs, *(Accuse(self._epoch, _was_lost(member), lost=True) for member in gone), *self._vote()]

    def everybody_came(self) -> list[FollowerOutput]:
        """The host has everybody and every measurement, and plans."""
        if self.state is State.FORMING:
            self.state = follow(self.state, Step.COMPLETE)
            self.shortage = ""
        return []

    def awaits_memory(self, sentence: str) -> list[FollowerOutput]:
        """The host finds that the model does not fit in what those present offer, and waits for more of them, however
        long that takes."""
        if self.state is State.CLOSED:
            return []
        was_planned = self.state in (State.LINKING, State.FETCHING, State.READY)
        self.state, self.shortage, self._replan_by = follow(self.state, Step.SHORT), sentence, None
        return [StopServing(Fault(self.host, "UNAVAILABLE", sentence))] if was_planned else []

    def proposed(self, proposal: Proposal) -> list[FollowerOutput]:
        """A newer plan, checked by the driver. An old one is dropped."""
        if self.state is State.CLOSED or (self.proposal and proposal.epoch <= self.proposal.epoch):
            return []
        outputs: list[FollowerOutput] = []
        if self.state in (State.FETCHING, State.READY):
            outputs.append(StopServing(Fault(self.host, "UNAVAILABLE", "the session is being planned again")))
        self.state, self.shortage = follow(self.state, Step.PROPOSED), ""
        self.proposal, self.loaded, self._replan_by = proposal, False, None
        return [*outputs, self._links(), *self._advance()]

    def may_fetch(self, epoch: int) -> list[FollowerOutput]:
        """All links stand, says the host. Its decisions may overtake each other: an early one waits."""
        self._fetch_epoch = max(self._fetch_epoch, epoch)
        return self._advance()

    def may_serve(self, epoch: int) -> list[FollowerOutput]:
        """Every stage is loaded, says the host."""
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

    def misled(self, fault: Fault, now: float) -> list[FollowerOutput]:
        """A neighbour in the ring broke its rules: this epoch is over here, and the session goes on in another."""
        return self._end_epoch(fault, now) if self.state is State.READY else []

    # ---- What others say, and whether this member hears of them

    def heard(self, member: str, now: float) -> None:
        """A member said something, whatever it was."""
        self.liveness.receive_message(member, now)
        if member == self.host:
            self._contact.receive_word(now)

    def rendezvous_lost(self, now: float) -> None:
        """The rendezvous does not answer this member, or knows its room no more."""
        self.liveness.receive_rendezvous_lost(now)
        self._contact.lose_rendezvous(now)

    def rendezvous_back(self) -> None:
        """It answers again, or another one does."""
        self.liveness.receive_rendezvous_back()
        self._contact.find_rendezvous()

    def left(self, member: str, now: float) -> list[FollowerOutput]:
        """A member said goodbye."""
        return self.failed(Fault(member, "UNAVAILABLE", f"{member} left the session"), now, resigns=True)

    def failed(self, fault: Fault, now: float, *, resigns: bool = False) -> list[FollowerOutput]:
        """A member says of itself that it can't go on, or has shown that it must not; the others can. resigns: it says
        goodbye."""
        if self.state is State.CLOSED or fault.member not in self.members:
            return []
        if fault.member == self.host:
            self._host_fault = fault
        if not self.liveness.receive_goodbye(fault.member, now, resigns=resigns):
            return []
        return self._lose(fault, now) + self._vote()

    def misbehaved(self, member: str, sentence: str) -> list[FollowerOutput]:
        """This member found frames of another one that break the rules; the host hears it, and judges."""
        if self.state is State.CLOSED or member == self.name or member not in self.members:
            return []
        return [Complain(self._epoch, Fault(member, "INTERNAL", sentence))]

    def stand_still(self, fault: Fault, now: float) -> list[FollowerOutput]:
        """This member is the host and hears too few of the others: nothing is served until it does."""
        if self.state is State.CLOSED:
            return []
        self.shortage = fault.sentence
        return [] if self.state is State.FORMING else self._end_epoch(fault, now)

    def close(self, fault: Fault | None, ending: Ending = Ending.OVER) -> list[FollowerOutput]:
        """Ends the session on this member."""
        if self.state is State.CLOSED:
            return []
        self.state, self.fault, self.ending = follow(self.state, Step.CLOSE), fault, ending
        stop = fault or Fault(self.name, "UNAVAILABLE", "the session was closed")
        return [StopServing(stop), Closed(fault)]

    # ---- Time

    def next_timer(self, now: float, silent_s: Mapping[str, float]) -> float | None:
        """When `handle_timer` has something to do, unless something else happens before."""
        if self.state is State.CLOSED:
            return None
        contact = None if self.host == self.name else self._contact.next_timer(now, silent_s.get(self.host))
        timers = (self._replan_by, contact, self.liveness.next_timer(now, silent_s))
        return min((timer for timer in timers if timer is not None), default=None)

    def handle_timer(self, now: float, silent_s: Mapping[str, float]) -> list[FollowerOutput]:
        """Acts on who is dead and on what was waited for too long. `silent_s` as in `liveness`."""
        if self.state is State.CLOSED:
            return []
        verdicts = self.liveness.handle_timer(now, silent_s)
        if NoSuccessor() in verdicts:
            return self.close(self._no_successor(), Ending.LOST)
        if self._replan_by is not None and now >= self._replan_by:
            fault = Fault(self.host, "UNAVAILABLE", f"{self.host} did not plan again in time")
            return self.close(fault, Ending.LOST)
        self._contact.look_at_links(now, are_missed=self.state is State.READY and not silent_s)
        finding = None if self.host == self.name else self._contact.handle_timer(now, silent_s.get(self.host))
        if finding is ContactLost.IS_CUT_OFF:
            return self.close(self._cut_off(), Ending.LOST)
        outputs: list[FollowerOutput] = [Ask(self.host)] if finding is ContactLost.ASKS else []
        for verdict in verdicts:
            match verdict:
                case Suspected(member):
                    outputs.append(Ask(member))
                case Died(member):
                    outputs += self._bury(member, now)
        has_other_heir = self.liveness.heir not in (None, self._voted_for)  # somebody before it was heard again
        return outputs + (self._vote() if has_other_heir or any(isinstance(one, Died) for one in verdicts) else [])

    # ---- Shared steps

    def _cut_off(self) -> Fault:
        sentence = (
            f"{self.name} heard nothing of {self.host}, the host, for {self._contact.patience_s:.0f} s, neither over a"
            " link nor from the rendezvous: the others may have gone on without it"
        )
        return Fault(self.name, "UNAVAILABLE", sentence)

    def _no_successor(self) -> Fault:
        if self._host_fault and self._host_fault.member == self.host:
            sentence = f"{self._host_fault.sentence}; too few members are left who agree on a successor"
        else:
            sentence = f"{self.host}, the host, was lost, and too few members missed it for another to take over"
        return Fault(self.host, "UNAVAILABLE", sentence)

    @property
    def _epoch(self) -> int:
        return self.proposal.epoch if self.proposal else 0

    def _links(self) -> OpenLinks:
        assert self.proposal is not None
        mine = [edge for edge in self.proposal.edges(self.members) if self.name in edge]
        return OpenLinks(self.proposal.epoch, frozenset(peer for edge in mine for peer in edge if peer != self.name))

    def _bury(self, member: str, now: float) -> list[FollowerOutput]:
        fault = _was_lost(member)
        outputs = self._lose(fault, now)
        return outputs if member == self.host else [*outputs, Accuse(self._epoch, fault, lost=True)]

    def _lose(self, fault: Fault, now: float) -> list[FollowerOutput]:
        """A member is gone: its stage ends the epoch, and so does the host, whom somebody has to succeed."""
        if self.proposal and (self.proposal.stage_of(fault.member) or fault.member == self.host):
            return self._end_epoch(fault, now)
        return []

    def _vote(self) -> list[FollowerOutput]:
        """Who succeeds the host, if it is gone."""
        heir = self._voted_for = self.liveness.heir
        return [] if heir is None else [Vote(heir)]

    def _end_epoch(self, fault: Fault, now: float) -> list[FollowerOutput]:
        self.state = follow(self.state, Step.LOST)
        if self.host != self.name:  # the host's own waits have deadlines
            self._replan_by = now + REPLAN_DEADLINE_S
        return [StopServing(fault)]


def _no_member(name: str) -> Fault:
    return Fault(name, "UNAVAILABLE", f"{name} is no longer in the session")


def _was_lost(name: str) -> Fault:
    return Fault(name, "UNAVAILABLE", f"{name} was lost: its machine no longer answers")
