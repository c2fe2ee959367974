"""A member as the entry of the log that admits it says. Pure."""

from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.session.membership import names
from kafila_sidecar.session.membership.agreement import check_agreement
from kafila_sidecar.session.membership.identity import fingerprint, public_key_of
from kafila_sidecar.session.membership.members import Member

PURPOSE = b"log entry"  # that each entry is signed for


def read_admitted(admitted: ring_pb2.Admitted, index: int) -> Member:
    """`index`: the entry's. Raises InvalidInput for bad keys, or an illegal name."""
    public_key_of(admitted.certificate)
    check_agreement(admitted.agreement)
    if not names.is_legal(admitted.name):
        raise InvalidInput(f"log entry {index} admits a member under an illegal name")
    pin = fingerprint(admitted.certificate)
    return Member(admitted.name, admitted.certificate, pin, admitted.agreement, admitted.mailbox, index)
