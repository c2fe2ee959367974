"""Whether most are with a host from which somebody took over, by who answered its roll call. Pure."""

from collections.abc import Collection, Iterator

from kafila_proto import ring_pb2
from kafila_sidecar.session.membership.log import Log


def are_most_here(log: Log, *, me: str, present: Collection[str], rival: ring_pb2.LogEntry, was_answered: bool) -> bool:
    """More than half of the others, the successor not counted, both of those who are members now, and of those who were
    where the `rival` entry goes: the votes were a majority of these, and who came later had none.

    `present`: who has answered. Who voted there and came back since does not know what became of its vote, so that its
    answer counts only where the host had answered those votes (`was_answered`).
    """
    successor = rival.taken_over.successor
    others = {one.name for one in log.members} - {me, successor}
    return _most(others & set(present), others) and _are_voters_here(log, me, present, rival, was_answered)


def _are_voters_here(log: Log, me: str, present: Collection[str], rival: ring_pb2.LogEntry, was_answered: bool) -> bool:
    voters = set() if was_answered else {ballot.voter for ballot in rival.taken_over.ballots}
    here = [one for one in log.members if one.name == me or one.name in present]
    aware = {one.fingerprint for one in here if one.name not in voters or one.index < rival.index}
    heirs = {one.fingerprint for one in log.before(rival.index).heirs if one.name != rival.taken_over.successor}
    others = heirs - set(_out_since(log, rival.index))
    return not others or _most(others & aware, others)


def _most(some: Collection[object], all_of_them: Collection[object]) -> bool:
    return 2 * len(some) > len(all_of_them)


def _out_since(log: Log, index: int) -> Iterator[bytes]:
    """Fingerprints of those who went for good by the entry at `index` or a later one, and have said so themselves: by
    their goodbye, or since they heard it."""
    now = {one.fingerprint for one in log.members}
    for at, signed in enumerate(log.entries[index:], start=index):
        entry = ring_pb2.LogEntry.FromString(signed.entry)
        before, after = log.before(at).members, log.before(at + 1).members
        for member in (before[name] for name in before.keys() - after.keys()):
            has_left = "left" in (entry.removed.reason, entry.taken_over.reason)
            if member.fingerprint not in now and (has_left or log.is_past(member, at)):
                yield member.fingerprint
