"""Entries of the log as they come in: taken with their keys, kept while they are early, or refused, and whom that
convicts. No I/O, no clock."""

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput, KafilaError, Refused
from kafila_sidecar.session.channel.events import Event, HostConvicted, Outvoted, WentAstray
from kafila_sidecar.session.membership import rekey
from kafila_sidecar.session.membership.keyring import Keyring
from kafila_sidecar.session.membership.log import Checked, Gap, Log
from kafila_sidecar.session.membership.members import Change, Member, Removal, TookOver
from kafila_sidecar.session.membership.rivals import Astray, Forked, ForkedByHost, LeftBehind, Orphaned
from kafila_sidecar.session.membership.succession import Ballots

logger = logging.getLogger(__name__)

KEPT_ENTRIES = 64  # log entries that came before the ones that they build on


def was_answered(entry: ring_pb2.LogEntry, log: Log, ballots: Ballots) -> bool:
    """Whether the present host had answered the votes by which somebody takes over here. Each host counts its standing
    anew, so that its number says nothing of votes against an earlier one."""
    return log.is_of_this_host(entry.index) and ballots.has_voided(entry.taken_over.standing)


class LogIntake:
    """One member's. `follow` tells what follows from a change that the log has just taken."""

    def __init__(
        self, *, log: Log, keys: Keyring, ballots: Ballots, me: Member, follow: Callable[[Change], list[Event]]
    ) -> None:
        self._log = log
        self._keys = keys
        self._ballots = ballots
        self._me = me
        self._follow = follow
        self._early: dict[int, ring_pb2.SignedEntry] = {}

    def take(self, entries: Iterable[ring_pb2.SignedEntry], sender: str) -> list[Event]:
        """Takes entries up to the first that is refused; raises Forked when most members went on without this one."""
        events: list[Event] = []
        waiting = deque(entries)
        while waiting:
            signed = waiting.popleft()
            try:
                events += self._take(signed, sender)
            except Gap as gap:
                self._keep(gap.index, signed)
            except (Denied, InvalidInput, Refused) as error:
                logger.warning("entry_refused code=%s reason=%s", error.code, error)
                return events + self._blame(error, signed, sender)
            if following := self._early.pop(len(self._log), None):
                waiting.appendleft(following)
        return events

    def learn(self, entries: Iterable[ring_pb2.SignedEntry]) -> list[Event]:
        """Takes what somebody at the door knows beyond this log, as far as it goes on from it; nobody is blamed for the
        rest."""
        events: list[Event] = []
        with contextlib.suppress(KafilaError):
            for signed in entries:
                events += self._take(signed, "")
        return events

    def _keep(self, index: int, signed: ring_pb2.SignedEntry) -> None:
        self._early[index] = signed
        if len(self._early) > KEPT_ENTRIES:
            del self._early[max(self._early)]

    def _take(self, signed: ring_pb2.SignedEntry, sender: str) -> list[Event]:
        self._log.follows(self._me, len(self._log), self._log.head)  # what is here is not undone
        checked = self._log.check(signed)
        if checked is None:
            return []
        key = self._new_key(checked, sender)
        self._log.take(checked)
        if key is not None:
            self._keys.take(key)
        return self._follow(checked.change)

    def _new_key(self, checked: Checked, sender: str) -> bytes | None:
        """The key that goes with a removal. Raises Denied when it is not there: then the entry waits to come again."""
        change = checked.change
        if isinstance(change, TookOver) and change.reason == "lost":
            self._check_votes(change, sender)
        if not isinstance(change, Removal) or change.member.name == self._me.name:
            return None
        if rekey.digest(checked.signed.rekey) != change.rekey:
            raise Denied("a log entry came without the new key that it names")
        return self._keys.unwrap(checked.signed.rekey, self._me.index)

    def _check_votes(self, change: TookOver, sender: str) -> None:
        """Raises Astray for votes that the host has answered, unless it gives way to them now; and a host that is there
        yields to no single member."""
        name = change.successor.name
        if self._ballots.has_voided(change.standing) and sender != self._log.host:
            raise Astray(f"{name} takes over by votes that the host has answered since", name)
        if change.member == self._me and len(self._log.now.heirs) == 1:
            raise Astray(f"{name} alone takes over from a host that is there", name)

    # ---- Whom a refused entry convicts

    def _blame(self, error: KafilaError, signed: ring_pb2.SignedEntry, sender: str) -> list[Event]:
        """Raises Forked when that is nobody."""
        match error:
            case ForkedByHost():
                return self._convict(error, signed)
            case Astray(name=name) if self._is_back(name, signed):
                return []
            case Forked() | Astray() if sender == self._log.host:
                raise self._given_way(error, signed)
            case Astray(name=name):
                return [self._astray(name, signed)]
            case Forked():
                return self._left_behind(error, signed)
            case _:
                return []

    def _is_back(self, name: str, signed: ring_pb2.SignedEntry) -> bool:
        """Whether who took over there gave way since, and is a member by a later entry of this history."""
        member = self._log.member(name)
        return member is not None and member.index >= ring_pb2.LogEntry.FromString(signed.entry).index

    def _astray(self, name: str, signed: ring_pb2.SignedEntry) -> Event:
        """A host of whom more than one of the others had to vote does not know yet with whom they are, whomever it has
        put out since."""
        index = min(ring_pb2.LogEntry.FromString(signed.entry).index, len(self._log))
        may_be_outvoted = self._log.now.host_member == self._me and len(self._log.before(index).heirs) > 1
        return Outvoted(name, (signed,)) if may_be_outvoted else WentAstray(name, (signed,))

    def _convict(self, error: ForkedByHost, signed: ring_pb2.SignedEntry) -> list[Event]:
        if self._log.now.host_member == self._me:
            raise error
        if self._ballots.has_convicted:
            return []
        self._ballots.convict()
        index = min(ring_pb2.LogEntry.FromString(signed.entry).index, len(self._log) - 1)
        return [HostConvicted(self._log.host, str(error), (self._log.entries[index], signed))]

    def _given_way(self, error: Denied, signed: ring_pb2.SignedEntry) -> Forked:
        """The host says itself that it was succeeded there."""
        entry, host = ring_pb2.LogEntry.FromString(signed.entry), self._log.host
        if entry.index > self._me.first_index:
            return LeftBehind(str(error), signed)
        return Orphaned(
            f"{host}, who let this machine in, had been cut off from the others, who had gone on with"
            f" {entry.taken_over.successor} as their host and don't know this machine: ask for the session's code and"
            " join again"
        )

    def _left_behind(self, error: Forked, signed: ring_pb2.SignedEntry) -> list[Event]:
        """Raises LeftBehind unless this member was admitted there or later, so that it is none of theirs, or the host
        has answered those votes. Who only came back there is one of theirs, and comes back to them."""
        entry = ring_pb2.LogEntry.FromString(signed.entry)
        if entry.index <= self._me.first_index or was_answered(entry, self._log, self._ballots):
            return [self._astray(entry.taken_over.successor, signed)]
        raise LeftBehind(str(error), signed)
