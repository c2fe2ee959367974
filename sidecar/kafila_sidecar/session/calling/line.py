"""What two members share to call each other, and their datagrams' bytes: `04`, the pair's name (8 bytes), a nonce (12),
and a `CallBody` sealed with ChaCha20-Poly1305. Pure."""

import hashlib
import hmac
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput
from kafila_sidecar.session.membership.agreement import pair_keys
from kafila_sidecar.session.membership.identity import Identity
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.membership.seal import NONCE_BYTES, Entropy, Sealer

FIRST_BYTE = 4  # neither STUN nor the relay's nor QUIC (RFC 9443)
LARGEST_CALL_BYTES = 1_024
_NAME_BYTES = 8
_START = 1 + _NAME_BYTES
_CONTEXT = b"kafila call"


@dataclass(frozen=True, slots=True)
class PairLine:
    """One pair's, as one of its ends has it. The name tells strangers nothing."""

    name: bytes
    own_key: bytes = field(repr=False)
    their_key: bytes = field(repr=False)

    def seal(self, body: ring_pb2.CallBody, entropy: Entropy) -> bytes:
        sealed = Sealer(self.own_key, _CONTEXT, entropy).seal(body.SerializeToString())
        return bytes([FIRST_BYTE]) + self.name + sealed.nonce + sealed.ciphertext

    def open(self, datagram: bytes, entropy: Entropy) -> ring_pb2.CallBody:
        """Raises Denied for what the other end did not seal for this one, InvalidInput for what can't be read."""
        nonce, ciphertext = datagram[_START : _START + NONCE_BYTES], datagram[_START + NONCE_BYTES :]
        plain = Sealer(self.their_key, _CONTEXT, entropy).open(ring_pb2.Sealed(nonce=nonce, ciphertext=ciphertext))
        try:
            return ring_pb2.CallBody.FromString(plain)
        except DecodeError as error:
            raise InvalidInput("a call can't be read") from error


def line_to(session: bytes, own: Identity, other: Member) -> PairLine:
    """Nobody but these two can make it. Raises InvalidInput for a member without a good key."""
    shared = pair_keys(session, own.agreement_key, other.agreement).link

    def key(writer: bytes) -> bytes:
        return hmac.digest(shared, b"kafila call key\0" + session + writer, hashlib.sha256)

    name = hmac.digest(shared, b"kafila call name\0" + session, hashlib.sha256)[:_NAME_BYTES]
    return PairLine(name, key(own.fingerprint), key(other.fingerprint))


def name_in(datagram: bytes) -> bytes:
    """The pair's; raises Denied for what is no call."""
    if not _START + NONCE_BYTES < len(datagram) <= LARGEST_CALL_BYTES or datagram[0] != FIRST_BYTE:
        raise Denied("a datagram is no call")
    return datagram[1:_START]
