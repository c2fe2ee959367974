"""Whether most are with a host from which somebody took over, by who answered its roll call. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from kafila_proto import ring_pb2
from kafila_sidecar.session.membership.log import Log
from kafila_sidecar.session.membership.members import Member


def are_most_here(
    log: Log, *, me: str, present: Collection[str], rival: ring_pb2.LogEntry, stood: Mapping[bytes, int]
) -> bool:
    """More than half of the others, the successor not counted, both of those who are members now, and of those who were
    where the `rival` entry goes: the votes were a majority of these, and who came later had none.

    `present`: who has answered. Who voted there and came back since does not know what became of its vote, so that its
    answer counts only where the host had answered those votes by then; `stood`: under which number of the host's
    standing each came back, by fingerprint. A successor that has gone past that place by its own word took over in two
    histories, and nobody's vote counts for it.
    """
    successor = rival.taken_over.successor
    others = {one.name for one in log.members} - {me, successor}
    if others and not _most(others & set(present), others):
        return False
    here = [one for one in log.members if one.name == me or one.name in present]
    has_lied = any(one.name == successor and log.is_past(one, rival.index) for one in log.members)
    return has_lied or _are_voters_here(log, [one for one in here if _knows(log, one, rival, stood)], rival)


def _knows(log: Log, one: Member, rival: ring_pb2.LogEntry, stood: Mapping[bytes, int]) -> bool:
    """Whether this member, who is here, knows what became of its vote, or had none."""
    if one.index < rival.index or all(ballot.voter != one.name for ballot in rival.taken_over.ballots):
        return True
    return log.is_of_this_host(rival.index) and rival.taken_over.standing < stood.get(one.fingerprint, 0)


def _are_voters_here(log: Log, here: Iterable[Member], rival: ring_pb2.LogEntry) -> bool:
    heirs = {one.fingerprint for one in log.before(rival.index).heirs if one.name != rival.taken_over.successor}
    others = heirs - set(_out_since(log, rival.index))
    return not others or _most(others & {one.fingerprint for one in here}, others)


def _most(some: Collection[object], all_of_them: Collection[object]) -> bool:
    return 2 * len(some) > len(all_of_them)


def _out_since(log: Log, index: int) -> Iterator[bytes]:
    """Fingerprints of those who went for good by the entry at `index` or a later one, and have said so themselves: by
    their goodbye, or since they heard it."""
    now = {one.fingerprint for one in log.members}
    for at, signed in enumerate(log.entries[index:], start=index):
        entry = ring_pb2.LogEntry.FromString(signed.entry)
        before, after = log.before(at).members, log.before(at + 1).members
        for member in (one for name, one in before.items() if name not in after):
            has_left = "left" in (entry.removed.reason, entry.taken_over.reason)
            if member.fingerprint not in now and (has_left or log.is_past(member, at)):
                yield member.fingerprint
