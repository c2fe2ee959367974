"""Sealed control messages: who is outside the session can't read them, who is inside can't forge another's.

An Envelope is signed by its sender's certificate key and numbered; sealed with the session's key (`keyring`) it may
travel any way (the rendezvous, a link, passed on by others), in any order, more than once.
"""

import struct
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from google.protobuf.message import DecodeError

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput
from kafila_sidecar.session.membership.identity import Identity, public_key_of, verify
from kafila_sidecar.session.membership.members import Member

KEY_BYTES = 32
NONCE_BYTES = 12
HEAD_BYTES = 32  # SHA-256
LARGEST_SEALED_BYTES = 256 * 1024  # what one piece of mail may hold
LARGEST_CONTROL_BYTES = LARGEST_SEALED_BYTES - 1024  # leaves room for names, signature and framing
WINDOW = 1024  # sequence numbers that may still come late

_PURPOSE = b"control"

Entropy = Callable[[int], bytes]


class Sealer:
    """One key for one direction or one group; every nonce is drawn anew (96 bits, so 2^32 messages are safe)."""

    def __init__(self, key: bytes, context: bytes, entropy: Entropy) -> None:
        self._cipher = ChaCha20Poly1305(key)
        self._context = context
        self._entropy = entropy

    def seal(self, plain: bytes) -> ring_pb2.Sealed:
        nonce = self._entropy(NONCE_BYTES)
        return ring_pb2.Sealed(nonce=nonce, ciphertext=self._cipher.encrypt(nonce, plain, self._context))

    def open(self, sealed: ring_pb2.Sealed) -> bytes:
        """Raises Denied for what was not sealed with this key and context."""
        if len(sealed.nonce) != NONCE_BYTES:
            raise Denied("a sealed message has a nonce of the wrong length")
        try:
            return self._cipher.decrypt(sealed.nonce, sealed.ciphertext, self._context)
        except InvalidTag as error:
            raise Denied("a sealed message does not open with this session's key") from error


class ReplayWindow:
    """Which of one sender's sequence numbers were delivered: the highest, and the `WINDOW` before it."""

    def __init__(self) -> None:
        self._highest = 0
        self._bits = 0  # bit i: highest - i was seen

    def has(self, sequence: int) -> bool:
        """True for what was added, and for what is older than the window."""
        behind = self._highest - sequence
        return behind >= WINDOW or (behind >= 0 and bool(self._bits >> behind & 1))

    def add(self, sequence: int) -> None:
        """Notes a number that `has` did not know."""
        behind = self._highest - sequence
        if behind >= 0:
            self._bits |= 1 << behind
            return
        kept = self._bits << -behind if -behind < WINDOW else 0
        self._bits = (kept | 1) & ((1 << WINDOW) - 1)
        self._highest = sequence


def sign_envelope(
    identity: Identity,
    *,
    session: bytes,
    sender: str,
    sequence: int,
    log_length: int,
    log_head: bytes,
    control: ring_pb2.Control,
) -> ring_pb2.Envelope:
    """An envelope of this member's, whose log is so long and ends with the entry of this hash, 32 bytes.

    Raises InvalidInput when the control message is too large to be mailed.
    """
    body = control.SerializeToString()
    if len(body) > LARGEST_CONTROL_BYTES:
        raise InvalidInput(f"a control message of {len(body)} bytes is over {LARGEST_CONTROL_BYTES} bytes")
    envelope = ring_pb2.Envelope(
        sender=sender, sequence=sequence, log_length=log_length, log_head=log_head, control=body
    )
    envelope.signature = identity.sign(_PURPOSE, _signed_bytes(session, envelope))
    return envelope


def read_sealed(data: bytes) -> ring_pb2.Sealed:
    """A sealed message as it came; raises InvalidInput."""
    if len(data) > LARGEST_SEALED_BYTES:
        raise InvalidInput(f"a sealed message of {len(data)} bytes is over {LARGEST_SEALED_BYTES} bytes")
    try:
        return ring_pb2.Sealed.FromString(data)
    except DecodeError as error:
        raise InvalidInput("a sealed message can't be read") from error


def is_for_all(data: bytes) -> bool:
    """Whether a sealed message is for the whole group, so that it is worth passing on; else for one member only."""
    return read_sealed(data).key != 0


def read_envelope(plain: bytes) -> ring_pb2.Envelope:
    """What a sealed message held, not verified yet; raises InvalidInput."""
    try:
        return ring_pb2.Envelope.FromString(plain)
    except DecodeError as error:
        raise InvalidInput("a sealed message holds no envelope") from error


def verify_envelope(envelope: ring_pb2.Envelope, *, session: bytes, sender: Member) -> ring_pb2.Control:
    """The control message; raises Denied unless `sender` signed it, InvalidInput when it can't be read."""
    if len(envelope.log_head) != HEAD_BYTES:
        raise InvalidInput(f"{sender.name} does not say by which entry its membership log ends")
    key = public_key_of(sender.certificate)
    verify(key, _PURPOSE, _signed_bytes(session, envelope), envelope.signature)
    try:
        return ring_pb2.Control.FromString(envelope.control)
    except DecodeError as error:
        raise InvalidInput(f"{sender.name} sent a control message that can't be read") from error


def _signed_bytes(session: bytes, envelope: ring_pb2.Envelope) -> bytes:
    sender = envelope.sender.encode()
    numbers = struct.pack(">HQQ", len(sender) & 0xFFFF, envelope.sequence, envelope.log_length)
    return session + numbers + sender + envelope.log_head + envelope.control
