"""Who is dead, by which rules and after how long; every such rule is here. No I/O, no clock.

Each member judges the others by itself (`Liveness`): nothing came over their link for `LINK_SILENT_S`; or the
rendezvous misses them, the link is silent for `LINK_SILENT_AND_GONE_S`, and they did not answer by another way when
they were asked for; or the rendezvous misses them, there is no link, and they did not answer either. The rendezvous'
word alone kills nobody, and neither does one member's: the host hears who was accused (`Hearings`). The host itself is
judged by the same rules; then the others need a successor within `TAKEOVER_DEADLINE_S`.

Times are seconds of the driver's monotonic clock, given as `now`; `silent_s` says of each linked peer how long nothing
came from it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

LINK_SILENT_AND_GONE_S = 1.5  # while the rendezvous misses it too: with the time to notice that, some 2 s
ASK_AFTER_S = 0.5  # a member that the rendezvous misses and this one has no link to is asked for by every other way
GONE_WITHOUT_LINK_S = 2.0  # and is dead if it did not answer by then
LINK_SILENT_S = 15.0  # silence alone
LISTEN_S = 5.0  # after its own sleep a member hears what the others say before it judges anybody
TAKEOVER_DEADLINE_S = 30.0  # how long a member waits for the others to miss the host too, and for a successor
KNOCK_COUNTS_S = 6.0  # from a member's knock on: who comes back knocks every 3 s
HEARING_S = 2.0  # how long somebody who is accused has to say anything at all
MOST_FALSE_ALARMS = 3  # of one accuser; its own network must be at fault, or its honesty
ONE_OUTAGE_S = 15.0  # false alarms about different members within this are one: they have one cause


@dataclass(frozen=True, slots=True)
class Suspected:
    """The member may be dead: ask everybody whether it is there."""

    member: str


@dataclass(frozen=True, slots=True)
class Died:
    """The member does not answer any more."""

    member: str


@dataclass(frozen=True, slots=True)
class NoSuccessor:
    """The host is lost, and nobody took its place in time."""


Verdict = Suspected | Died | NoSuccessor


class Liveness:
    """Who is there, as one member sees it. `rendezvous_at` is who embeds the rendezvous: they are lost together."""

    def __init__(self, *, me: str, host: str, members: Iterable[str], rendezvous_at: str = "") -> None:
        self._me = me
        self._host = host
        self._members = tuple(members)
        self._rendezvous_at = rendezvous_at
        self._departed_at: dict[str, float] = {}  # since when the rendezvous misses a member
        self._doubted_at: float | None = None  # since when others miss the host, and it said nothing
        self._asked: dict[str, float] = {}  # for these, and when
        self._heard_at: dict[str, float] = {}
        self._left: set[str] = set()  # said goodbye
        self._gone: set[str] = set()  # left, or died
        self._resigned: set[str] = set()  # of those who left, by their own word
        self._knocked_at: dict[str, float] = {}  # who comes back, and was not heard in the session since
        self._takeover_by: float | None = None
        self._listens_until: float | None = None

    # ---- What happens

    def woke(self, now: float) -> None:
        """This process was asleep, or stopped: what it did not hear meanwhile says nothing of the others."""
        self._listens_until = now + LISTEN_S
        self._departed_at = dict.fromkeys(self._departed_at, now)
        self._doubted_at = None if self._doubted_at is None else now
        self._asked.clear()
        if self._takeover_by is not None:
            self._takeover_by = now + TAKEOVER_DEADLINE_S

    def receive_members(self, members: Iterable[str], host: str, now: float) -> None:
        """The membership log grew; it may name another host."""
        self._members = tuple(members)
        kept = set(self._members)
        self._departed_at = {member: since for member, since in self._departed_at.items() if member in kept}
        self._heard_at = {member: at for member, at in self._heard_at.items() if member in kept}
        self._asked = {member: at for member, at in self._asked.items() if member in kept}
        self._left, self._gone, self._resigned = self._left & kept, self._gone & kept, self._resigned & kept
        self._knocked_at = {member: at for member, at in self._knocked_at.items() if member in kept}
        if host != self._host:
            self._host, self._takeover_by, self._doubted_at = host, None, None
            self._await_successor(now)

    def receive_message(self, member: str, now: float) -> None:
        """A member said something, so it is there, unless that was before its goodbye."""
        if member in self._left or member not in self._members:
            return
        self._heard_at[member] = now
        self._gone.discard(member)
        self._knocked_at.pop(member, None)
        if member == self._host:
            self._takeover_by = self._doubted_at = None
            if member not in self._departed_at:
                self._asked.pop(member, None)

    def receive_doubt(self, now: float) -> None:
        """Another member misses the host: it is asked for, unless its link says that it is there."""
        if self._doubted_at is None and self._host not in {self._me, *self._gone}:
            self._doubted_at = now

    def receive_knock(self, member: str, now: float) -> None:
        """A member, it seems, was started again or has given up waiting, and comes back: it votes for nobody in here.
        Nothing proves it, so that it counts for a moment only, and not against what is heard of that member here."""
        self._knocked_at[member] = now

    def receive_goodbye(self, member: str, now: float, *, resigns: bool = False) -> bool:
        """A member goes by its own word, which is a host's resignation, or by what it can't do. False if it was gone
        before."""
        self._left.add(member)
        self._resigned |= {member} if resigns else set()
        return self._lose(member, now)

    def receive_departure(self, member: str, now: float) -> None:
        """The rendezvous says that a member's stream ended: by itself no more than a suspicion."""
        if member in self._members and member != self._me:
            self._departed_at.setdefault(member, now)

    def receive_return(self, member: str) -> None:
        """The member attends the rendezvous again."""
        self._departed_at.pop(member, None)
        self._asked.pop(member, None)

    def receive_move(self, rendezvous_at: str) -> None:
        """The session's room is elsewhere; `rendezvous_at`: who embeds it there, if a member does."""
        self._rendezvous_at = rendezvous_at

    def receive_rendezvous_lost(self, now: float) -> None:
        """The rendezvous does not answer this member."""
        self.receive_departure(self._rendezvous_at, now)

    def receive_rendezvous_back(self) -> None:
        """It answers again."""
        self.receive_return(self._rendezvous_at)

    # ---- What follows

    def is_beyond_doubt(self, member: str) -> bool:
        """Whether it did not answer either, when it was asked for since the rendezvous misses it."""
        departed_at = self._departed_at.get(member)
        return departed_at is not None and self._heard_at.get(member, -math.inf) < departed_at + ASK_AFTER_S

    def is_gone(self, member: str) -> bool:
        """Whether it left or died, as this member sees it."""
        return member in self._gone or member not in self._members

    @property
    def heir(self) -> str | None:
        """Whom to vote for: who joined first of those who are there, perhaps this member. None while the host is."""
        if self._host not in self._gone:
            return None
        return next(member for member in self._members if member != self._host and member not in self._gone)

    def next_timer(self, now: float, silent_s: Mapping[str, float]) -> float | None:
        """The earliest moment at which somebody may have to be asked for, or be dead."""
        timers = [] if self._takeover_by is None else [self._takeover_by]
        if self._takeover_by is not None and self._lacks_voters(now, silent_s):
            timers.append(now)
        for member in self._others:
            if self._may_be_asked(member, now, silent_s):
                timers.append(self._missed_since(member, now, silent_s) + ASK_AFTER_S)
            if (dies_at := self._dies_at(member, now, silent_s)) is not None:
                timers.append(dies_at)
        due = min(timers, default=None)
        return due if due is None or self._listens_until is None else max(due, self._listens_until)

    def handle_timer(self, now: float, silent_s: Mapping[str, float]) -> list[Verdict]:
        """What has become due."""
        if self._listens_until is not None and now < self._listens_until:
            return []
        self._listens_until = None
        if self._doubted_at is not None and now - silent_s.get(self._host, math.inf) > self._doubted_at:
            self._doubted_at = None  # its link says that it is there
        if self._takeover_by is not None and (now >= self._takeover_by or self._lacks_voters(now, silent_s)):
            return [NoSuccessor()]
        verdicts: list[Verdict] = []
        for member in self._others:
            dies_at = self._dies_at(member, now, silent_s)
            if dies_at is not None and now >= dies_at and self._lose(member, now):
                verdicts.append(Died(member))
            elif (
                self._may_be_asked(member, now, silent_s)
                and now >= self._missed_since(member, now, silent_s) + ASK_AFTER_S
            ):
                self._asked[member] = now
                verdicts.append(Suspected(member))
        return verdicts

    # ---- The rules

    @property
    def _others(self) -> Sequence[str]:
        return [member for member in self._members if member != self._me]

    def _lacks_voters(self, now: float, silent_s: Mapping[str, float]) -> bool:
        """Whether nobody can become the host in here, as so many knock to come back; of two, if the host does, whom
        the other one can't succeed. Who waits for a successor goes where they come back. None votes where the host has
        resigned: its heir takes over."""
        outside = {
            member
            for member, at in self._knocked_at.items()
            if now < at + KNOCK_COUNTS_S and silent_s.get(member, math.inf) >= LINK_SILENT_AND_GONE_S
        }
        if not outside or self._host in self._resigned:
            return False
        heirs = [one for one in self._members if one != self._host]
        voters = [one for one in heirs if one not in outside]
        return self._host in outside if len(heirs) == 1 else 2 * len(voters) <= len(heirs)

    def _may_be_asked(self, member: str, now: float, silent_s: Mapping[str, float]) -> bool:
        """Once; who has no link again each time that it has said nothing for long."""
        if self._missed_at(member) is None or member in self._gone:
            return False
        asked_at = self._asked.get(member)
        return asked_at is None or (member not in silent_s and asked_at < self._missed_since(member, now, silent_s))

    def _missed_at(self, member: str) -> float | None:
        """Since when the rendezvous or, if it is the host, others miss it."""
        departed_at = self._departed_at.get(member)
        if member != self._host or self._doubted_at is None:
            return departed_at
        return self._doubted_at if departed_at is None else min(departed_at, self._doubted_at)

    def _missed_since(self, member: str, now: float, silent_s: Mapping[str, float]) -> float:
        """Since when both the rendezvous, or others, and the link, if there is one, miss it. Who has none and was heard
        since, perhaps by the link that it had, is missed anew once it was silent for as long as a link may be."""
        missed_at, heard_at = self._missed_at(member), self._heard_at.get(member, -math.inf)
        assert missed_at is not None
        if member in silent_s:
            return max(missed_at, now - silent_s[member])
        return missed_at if heard_at < missed_at + ASK_AFTER_S else heard_at + LINK_SILENT_S

    def _dies_at(self, member: str, now: float, silent_s: Mapping[str, float]) -> float | None:
        """When this member is dead unless something comes from it; None when nothing is held against it."""
        if member in self._gone:
            return None
        if self._missed_at(member) is None or self._answered(member, now, silent_s):
            return now + (LINK_SILENT_S - silent_s[member]) if member in silent_s else None
        allowed_s = LINK_SILENT_AND_GONE_S if member in silent_s else GONE_WITHOUT_LINK_S
        return self._missed_since(member, now, silent_s) + allowed_s

    def _answered(self, member: str, now: float, silent_s: Mapping[str, float]) -> bool:
        """What came so late was said after it was missed, by whichever way."""
        return self._heard_at.get(member, -math.inf) >= self._missed_since(member, now, silent_s) + ASK_AFTER_S

    def _lose(self, member: str, now: float) -> bool:
        if member in self._gone:
            return False
        self._gone.add(member)
        self._await_successor(now)
        return True

    def _await_successor(self, now: float) -> None:
        if self._host in self._gone and self._takeover_by is None:
            self._takeover_by = now + TAKEOVER_DEADLINE_S


@dataclass(frozen=True, slots=True)
class FalseAlarm:
    """Somebody held a member, or the host, to be lost that is there; `is_one_too_many`: and has done so before."""

    by: str
    is_one_too_many: bool
    accused: str = ""  # empty: the host
    counts: bool = True  # not where one outage was taken for several losses


class Hearings:
    """What the host does with accusations: one word of one member removes nobody."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._members: frozenset[str] = frozenset((me,))
        self._open: dict[str, tuple[str, float]] = {}  # accused -> accuser, until when
        self._false_alarms: Counter[str] = Counter()
        self._outages: dict[str, tuple[float, set[str]]] = {}  # by accuser: since when it raises them, and about whom

    def receive_members(self, members: Iterable[str]) -> None:
        """The membership log grew: who is no member is no party to a hearing."""
        self._members = frozenset(members)
        self._open = {accused: hearing for accused, hearing in self._open.items() if accused in self._members}
        self._false_alarms = Counter({name: n for name, n in self._false_alarms.items() if name in self._members})
        self._outages = {name: outage for name, outage in self._outages.items() if name in self._members}

    def receive_accusation(self, accused: str, accuser: str, now: float) -> None:
        """A member says that another one is lost: it is, unless it is heard within `HEARING_S`."""
        if accused not in (accuser, self._me) and {accused, accuser} <= self._members:
            self._open.setdefault(accused, (accuser, now + HEARING_S))

    def receive_message(self, member: str, now: float) -> FalseAlarm | None:
        """A member says something; its accuser, if it has one, raised a false alarm."""
        hearing = self._open.pop(member, None)
        return self._count(hearing[0], member, now) if hearing else None

    def receive_doubt(self, by: str, now: float) -> FalseAlarm | None:
        """A member holds this one, the host, to be lost."""
        return self._count(by, "", now) if by in self._members else None

    def accuser_of(self, member: str) -> str:
        """Who holds it to be lost, while that is heard; else empty."""
        return self._open[member][0] if member in self._open else ""

    def dismiss(self, member: str) -> None:
        """It is heard no more whether this one is lost."""
        self._open.pop(member, None)

    def forgive(self, by: str) -> None:
        """Its latest alarm was true, as it turned out."""
        self._false_alarms[by] = max(0, self._false_alarms[by] - 1)

    def next_timer(self) -> float | None:
        """When the next hearing is over."""
        return min((until for _, until in self._open.values()), default=None)

    def handle_timer(self, now: float) -> list[Died]:
        """Who was not heard in time."""
        late = [accused for accused, (_, until) in self._open.items() if until <= now]
        for accused in late:
            del self._open[accused]
        return [Died(accused) for accused in late]

    def _count(self, by: str, accused: str, now: float) -> FalseAlarm:
        """The host's own alarms are not counted: nobody removes it."""
        counts = by != self._me and self._is_another_outage(by, accused, now)
        self._false_alarms[by] += counts
        return FalseAlarm(by, self._false_alarms[by] >= MOST_FALSE_ALARMS, accused, counts)

    def _is_another_outage(self, by: str, accused: str, now: float) -> bool:
        """One network that was away may have hidden everybody; nobody twice."""
        since, hidden = self._outages.get(by, (now - ONE_OUTAGE_S, set()))
        if now < since + ONE_OUTAGE_S and accused not in hidden:
            hidden.add(accused)
            return False
        self._outages[by] = now, {accused}
        return True
