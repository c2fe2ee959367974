"""Whether the history that a returning member is shown goes on from the one that it knows. Pure."""

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied
from kafila_sidecar.session.membership.admitted import PURPOSE
from kafila_sidecar.session.membership.identity import Identity, verify
from kafila_sidecar.session.membership.log import Log


def check_goes_on(known: Log, shown: Log, own: Identity) -> None:
    """Raises Denied unless all that is known here is in `shown`, from where it differs somebody took over with a proof,
    or what differs was signed by this member alone, which gives way: it was cut off, and the others went on.
    """
    place = _first_difference(known, shown)
    if place == len(known):
        return
    if 0 < place < len(shown):
        taken = ring_pb2.LogEntry.FromString(shown.entries[place].entry)
        if taken.HasField("taken_over") or _is_own_work(known, place, own):
            return
    raise Denied("who answers for this session tells another history of it than this machine knows")


def _first_difference(known: Log, shown: Log) -> int:
    pairs = zip(known.entries, shown.entries, strict=False)
    common = (index for index, (ours, theirs) in enumerate(pairs) if ours.entry != theirs.entry)
    return next(common, min(len(known), len(shown)))


def _is_own_work(known: Log, place: int, own: Identity) -> bool:
    key = own.private_key.public_key()
    try:
        for signed in known.entries[place:]:
            verify(key, PURPOSE, signed.entry, signed.signature)
    except Denied:
        return False
    return True
