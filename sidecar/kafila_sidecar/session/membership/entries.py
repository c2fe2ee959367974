"""Making entries of the membership log: each function signs one, appends it to the signer's log and returns it.

All raise as `Log.check` does: what others would refuse is refused here.
"""

from kafila_proto import ring_pb2
from kafila_sidecar.session.membership import rekey
from kafila_sidecar.session.membership.admitted import PURPOSE
from kafila_sidecar.session.membership.identity import Identity
from kafila_sidecar.session.membership.log import Log
from kafila_sidecar.session.membership.members import Replanning


def found_log(identity: Identity, *, session: bytes, terms: ring_pb2.SessionTerms, name: str, mailbox: int) -> Log:
    """A log of one entry, signed by the founder."""
    host = ring_pb2.Admitted(name=name, certificate=identity.der, mailbox=mailbox, agreement=identity.agreement)
    log = Log(session)
    _extend(log, identity, ring_pb2.LogEntry(founded=ring_pb2.Founded(terms=terms, host=host)))
    return log


def admit(
    log: Log, identity: Identity, *, name: str, certificate: bytes, agreement: bytes, mailbox: int
) -> ring_pb2.SignedEntry:
    """Admits a member."""
    admitted = ring_pb2.Admitted(name=name, certificate=certificate, agreement=agreement, mailbox=mailbox)
    return _extend(log, identity, ring_pb2.LogEntry(admitted=admitted))


def take_back(log: Log, identity: Identity, *, admitted: int, mailbox: int) -> ring_pb2.SignedEntry:
    """Lets the member that the entry `admitted` once admitted be one again."""
    return _extend(log, identity, ring_pb2.LogEntry(returned=ring_pb2.Returned(admitted=admitted, mailbox=mailbox)))


def remove(log: Log, identity: Identity, *, name: str, reason: str, new_key: bytes) -> ring_pb2.SignedEntry:
    """Removes a member; `new_key` is the `Rekey` for those who are left."""
    removed = ring_pb2.Removed(name=name, reason=reason, rekey=rekey.digest(new_key))
    return _extend(log, identity, ring_pb2.LogEntry(removed=removed), new_key)


def take_over(log: Log, identity: Identity, *, proof: ring_pb2.TakenOver, new_key: bytes) -> ring_pb2.SignedEntry:
    """Puts the signer in the host's place, by the proof that `Ballots.won` found."""
    taken = ring_pb2.TakenOver(rekey=rekey.digest(new_key))
    taken.MergeFrom(proof)
    return _extend(log, identity, ring_pb2.LogEntry(taken_over=taken), new_key)


def lock(log: Log, identity: Identity, *, locked: bool) -> ring_pb2.SignedEntry:
    """Locks or unlocks the session."""
    return _extend(log, identity, ring_pb2.LogEntry(locked=ring_pb2.Locked(locked=locked)))


def rule(log: Log, identity: Identity, *, replanning: Replanning) -> ring_pb2.SignedEntry:
    """Says what is done with a better plan."""
    return _extend(log, identity, ring_pb2.LogEntry(replanning=ring_pb2.Replanning(replanning=replanning)))


def _extend(log: Log, identity: Identity, change: ring_pb2.LogEntry, new_key: bytes = b"") -> ring_pb2.SignedEntry:
    place = log.place
    change.index, change.session, change.previous = place.index, place.session, place.previous
    entry = change.SerializeToString(deterministic=True)
    signed = ring_pb2.SignedEntry(entry=entry, signature=identity.sign(PURPOSE, entry), rekey=new_key)
    log.append(signed)
    return signed
