"""Who goes, as the host decides it from what everybody says of everybody. No I/O, no clock.

What counts is whether a member can be reached for the ring. A pair that can't exchange frames by any path is the pair's
fault: whom most of the others can't reach either goes; if they reach both, the two are no neighbours in the next plan.
Nobody goes on one member's word, and while the host hears no majority nobody goes at all.

A host that is without rendezvous and links hears nothing of how the others go on without it: silence alone says so.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafila_sidecar.session.coordination.liveness import (
    HEARING_S,
    LINK_SILENT_S,
    LISTEN_S,
    MOST_FALSE_ALARMS,
    FalseAlarm,
    Hearings,
)
from kafila_sidecar.session.coordination.mesh import Edge, Mesh
from kafila_sidecar.session.judging.majority import Majority

ROLL_CALL_S = 2.0  # how long those who have no link to the host have to say something when it asks
ALONE_DEADLINE_S = 180.0  # how long a host that hears no majority waits for one
MOST_COMPLAINTS = 2  # of different members against one, or of one against different members: that one goes


@dataclass(frozen=True, slots=True)
class Goes:
    """The member is out; the reason is one of the log's."""

    member: str
    reason: str


@dataclass(frozen=True, slots=True)
class BeginAnew:
    """Nobody goes, and all begin another epoch."""


@dataclass(frozen=True, slots=True)
class CallOut:
    """Ask everybody whether these are there."""

    members: Sequence[str]


@dataclass(frozen=True, slots=True)
class Alone:
    """The host hears too few; `too_long`: and has waited for more of them long enough."""

    unheard: Sequence[str]
    too_long: bool = False


@dataclass(frozen=True, slots=True)
class HeardAgain:
    """The host was alone, and hears enough of them again."""


@dataclass(frozen=True, slots=True)
class HostAtFault:
    """Several members say that the host itself breaks the rules."""


Judgement = Goes | BeginAnew | CallOut | Alone | HeardAgain | HostAtFault


class Losses:
    """The host's. Times are seconds of the driver's clock."""

    def __init__(self, me: str, mesh: Mesh) -> None:
        self.hearings = Hearings(me)
        self._me = me
        self._mesh = mesh
        self._majority = Majority(me)
        self._members: tuple[str, ...] = (me,)
        self._missing: dict[str, float] = {}  # since when; lost, once the host hears a majority; in this order
        self._waits_until: float | None = None  # for a majority
        self.is_alone = False  # the host hears no majority, and waits for one
        self._back_by: float | None = None  # when it hears one again: for those who are still missing
        self._listens_until = 0.0
        self._said_early: set[Edge] = set()  # both ends say that they can't reach each other: while the host listens
        self._waits_anew: set[Edge] = set()  # those of them since whose word no other epoch was begun
        self._unanswered_since: float | None = None  # by the rendezvous
        self._alarms: dict[Edge, str] = {}  # whose alarm about the other was counted
        self._rows: Counter[Edge] = Counter()  # how often the two accused each other
        self._complaints: dict[str, set[str]] = defaultdict(set)  # accused -> by whom

    # ---- What happens

    def receive_members(self, members: Sequence[str], now: float) -> None:
        """The membership log grew."""
        self._members = tuple(members)
        self.hearings.receive_members(members)
        self._majority.receive_members(members, now)
        self._missing = {name: since for name, since in self._missing.items() if name in members}
        self._alarms = {edge: by for edge, by in self._alarms.items() if edge <= set(members)}
        self._complaints = defaultdict(
            set, {accused: by & set(members) for accused, by in self._complaints.items() if accused in members}
        )

    def woke(self, now: float) -> None:
        """This process was asleep: what it heard before is old, and what it did not hear says nothing."""
        self._listens_until = now + LISTEN_S
        self._majority.woke()
        if self._unanswered_since is not None:
            self._unanswered_since = now

    def lose_rendezvous(self, now: float) -> None:
        """It does not answer the host, or knows its room no more."""
        if self._unanswered_since is None:
            self._unanswered_since = now

    def find_rendezvous(self) -> None:
        """It answers again, or another one does."""
        self._unanswered_since = None

    def receive_silence(self, silent_s: Mapping[str, float], now: float) -> None:
        """For each linked peer, how long nothing came from it, this process' own sleep included."""
        self._majority.receive_silence(silent_s, now)

    def receive_loss(self, member: str, now: float) -> list[Judgement]:
        """This member itself found another one dead, beyond doubt."""
        self._missing.setdefault(member, now)
        return self._settle(now)

    def receive_goodbye(self, member: str) -> list[Judgement]:
        """A member goes by its own word."""
        self._majority.receive_goodbye(member)
        return [Goes(member, "left")]

    def receive_last_word(self, member: str, now: float) -> list[Judgement]:
        """Who was removed has heard it: the others can't go on with its vote any more."""
        self._majority.receive_goodbye(member)
        return self._settle(now)

    def receive_accusation(self, accused: str, by: str, now: float) -> list[Judgement]:
        """A member can't reach another one."""
        if accused == by or not {accused, by} <= set(self._members):
            return []
        self._mesh.unlinked(by, accused)
        if self._mesh.cannot_reach(accused, by):
            return self._part(frozenset((accused, by)), now)
        self.hearings.receive_accusation(accused, by, now)
        return [CallOut([accused])] if self.hearings.accuser_of(accused) else []  # its accuser's word may not reach it

    def receive_doubt(self, by: str, now: float) -> list[Judgement]:
        """A member holds this one, the host, to be lost."""
        self._majority.receive_message(by, now)
        if by not in self._members:
            return []
        self._mesh.unlinked(by, self._me)
        if self._mesh.cannot_reach(self._me, by):
            return self._part(frozenset((self._me, by)), now)
        return self._answer(self.hearings.receive_doubt(by, now))

    def receive_unlinked(self, member: str, peer: str) -> None:
        """An end of a link says that it is down: whoever said so before was right."""
        edge = frozenset((member, peer))
        if self._alarms.get(edge) == peer:
            self.hearings.forgive(self._alarms.pop(edge))

    def receive_complaint(self, accused: str, by: str) -> list[Judgement]:
        """A member found that another one's frames break the rules."""
        if accused == by or not {accused, by} <= set(self._members):
            return []
        self._complaints[accused].add(by)
        against = [name for name, who in self._complaints.items() if by in who]
        if len(self._complaints[accused]) >= MOST_COMPLAINTS:
            return [HostAtFault()] if accused == self._me else [Goes(accused, "removed")]
        if len(against) >= MOST_COMPLAINTS and by != self._me:
            return [Goes(by, "removed")]
        self._mesh.bar(frozenset((accused, by)))
        return self._anew()

    def receive_message(self, member: str, now: float) -> list[Judgement]:
        """A member said something, whatever it was."""
        self._majority.receive_message(member, now)
        judged: list[Judgement] = []
        if member in self._missing:
            del self._missing[member]
            judged += self._anew()
        accuser = self.hearings.accuser_of(member)
        if accuser and self._mesh.cannot_reach(member, accuser):
            judged += self._hear_both(frozenset((member, accuser)), now)
        return judged + self._answer(self.hearings.receive_message(member, now)) + self._settle(now)

    # ---- Time

    def next_timer(self) -> float | None:
        """When `handle_timer` has something to do, unless something else happens before."""
        listened = self._listens_until if self._said_early else None
        cut_off_at = None if self.is_alone or self._waits_until else self._cut_off_at
        timers = (self.hearings.next_timer(), self._waits_until, self._back_by, listened, cut_off_at)
        due = min((timer for timer in timers if timer is not None), default=None)
        return None if due is None else max(due, self._listens_until)

    def handle_timer(self, now: float) -> list[Judgement]:
        """Who was not heard in time, and whether there is a majority now."""
        if now < self._listens_until:
            return []
        for died in self.hearings.handle_timer(now):
            self._missing.setdefault(died.member, now)
        judged = [*self._part_late(now), *self._settle(now)]
        if self._waits_until is None or now < self._waits_until:
            return judged
        too_long, self.is_alone = self.is_alone, True
        self._waits_until = None if too_long else now + ALONE_DEADLINE_S
        return [*judged, Alone(self._majority.unheard(now), too_long)]

    # ---- Judging

    def _settle(self, now: float) -> list[Judgement]:
        """Who is missing goes if the host hears a majority; else the others are called."""
        if not self._missing and not self.is_alone and not self._is_cut_off(now):
            self._waits_until = None
            return []
        if now < self._listens_until:
            return []
        if self._majority.is_here(now):
            return self._await_rest(now) if self.is_alone else self._let_go(now)
        self._back_by = None
        if self._waits_until is not None:
            return []
        self._waits_until = now + ROLL_CALL_S
        return [CallOut([name for name in self._majority.unheard(now) if name not in self._missing])]

    @property
    def _cut_off_at(self) -> float | None:
        """When too few were heard for so long that the others may have gone on; None while the rendezvous answers."""
        if self._unanswered_since is None or self._majority.heard_most_at == math.inf:
            return None
        return max(self._unanswered_since, self._majority.heard_most_at) + LINK_SILENT_S

    def _is_cut_off(self, now: float) -> bool:
        return (at := self._cut_off_at) is not None and now >= at

    def _await_rest(self, now: float) -> list[Judgement]:
        """What had cut the host off from most of them may be over for the rest a little later; and what comes first was
        written before, by members that may have gone on without it."""
        if self._back_by is None:
            self._back_by = now + HEARING_S  # within which those who were heard are heard lately
            return [CallOut(list(self._missing))] if self._missing else []
        return [] if now < self._back_by else self._let_go(now)

    def _let_go(self, now: float) -> list[Judgement]:
        """Whoever was heard since it is missing, perhaps over a link that has just come up, is here: the majority that
        decides may be one by it."""
        gone = [name for name, since in self._missing.items() if self._majority.heard_at(name) <= since]
        here, was_alone = self._missing.keys() - set(gone), self.is_alone
        self._missing, self._waits_until, self._back_by, self.is_alone = {}, None, None, False
        judged: list[Judgement] = [Goes(name, "lost") for name in gone]
        anew = self._anew() if here or was_alone else []
        return [*([HeardAgain()] if was_alone else []), *judged, *anew]

    def _part(self, edge: Edge, now: float) -> list[Judgement]:
        """Both ends say that they can't reach each other. What they said while the host slept may be over."""
        for name in edge:
            self.hearings.dismiss(name)
        if now < self._listens_until:
            self._said_early.add(edge)
            self._waits_anew.add(edge)
            return []
        if edge in self._alarms:
            self.hearings.forgive(self._alarms.pop(edge))
        self._rows[edge] += not self._mesh.is_apart(edge)
        self._mesh.part(edge)
        if self._rows[edge] >= MOST_FALSE_ALARMS:
            self._mesh.bar(edge)
        if one := self._mesh.cut_off(edge, self._members, host=self._me):
            return self.receive_loss(one, now)
        return self._anew()

    def _hear_both(self, edge: Edge, now: float) -> list[Judgement]:
        """Each end has said that it can't reach the other. Where the link of one has come up since, its alarm was no
        false one all the same: the other end was down."""
        if self._mesh.are_parted(edge):
            return self._part(edge, now)
        for name in edge:
            self.hearings.dismiss(name)
        return self._anew()

    def _anew(self) -> list[Judgement]:
        self._waits_anew = set()
        return [BeginAnew()]

    def _part_late(self, now: float) -> list[Judgement]:
        """Once the host has listened: whose links still don't stand. Where they do again, the two had ended their epoch
        all the same, and wait for another one."""
        said, waits = self._said_early, self._waits_anew
        self._said_early, self._waits_anew = set(), set()
        here = sorted((edge for edge in said if edge <= set(self._members)), key=sorted)
        parted = [edge for edge in here if self._mesh.are_parted(edge)]
        judged = [judgement for edge in parted for judgement in self._part(edge, now)]
        return judged or (self._anew() if waits & set(here) else [])

    def _answer(self, alarm: FalseAlarm | None) -> list[Judgement]:
        """Who raised a false alarm has ended its epoch, so that all begin another; who raises too many is removed."""
        if alarm is None:
            return []
        if alarm.is_one_too_many:
            return [Goes(alarm.by, "removed")]
        if alarm.counts:
            self._alarms[frozenset((alarm.by, alarm.accused or self._me))] = alarm.by
        return self._anew()
