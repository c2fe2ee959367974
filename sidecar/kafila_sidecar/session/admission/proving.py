"""How a member that comes back proves which one it is: the keys of one exchange, and the signatures over it. Pure.

Who answers learns by a token which member knocks; only members of the session can make one, or tell from one. From then
on both sides seal with keys that follow from two fresh pairs and the returning member's own agreement key, and each
signs the exchange, so that nothing of it is good twice. See docs/session.md, section 5.
"""

import hashlib
import hmac
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from kafila_sidecar.session.admission.pake import Entropy
from kafila_sidecar.session.membership.agreement import derive, exchange
from kafila_sidecar.session.membership.members import Member

EPHEMERAL_BYTES = 32

# What is signed, by purpose.
CHALLENGE, PROOF, WELCOME, WAIT, REFUSAL = (
    b"who comes back",
    b"coming back",
    b"welcome back",
    b"coming back too",
    b"not coming back",
)
RETURNER_CONTEXT, ANSWERER_CONTEXT = b"kafila return, member", b"kafila return, host"


@dataclass(frozen=True, slots=True)
class ExchangeKeys:
    """One exchange's, the same at both ends: 32 bytes each, and the digest that is signed."""

    returner_seal: bytes = field(repr=False)
    answerer_seal: bytes = field(repr=False)
    transcript: bytes = field(repr=False)  # SHA-256


def draw_ephemeral(entropy: Entropy) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(entropy(EPHEMERAL_BYTES))


def public_of(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def token(session: bytes, fingerprint: bytes, ephemeral: bytes) -> bytes:
    """By which members know who knocks, 32 bytes."""
    return hashlib.sha256(b"kafila knock" + session + fingerprint + ephemeral).digest()


def fits(said: bytes, session: bytes, member: Member, ephemeral: bytes) -> bool:
    """Whether this member knocks."""
    return hmac.compare_digest(said, token(session, member.fingerprint, ephemeral))


def returners_keys(
    session: bytes, fingerprint: bytes, *, own: X25519PrivateKey, ephemeral: X25519PrivateKey, theirs: bytes
) -> ExchangeKeys:
    """`own`: the returning member's agreement key; `theirs`: the answerer's ephemeral one. Raises InvalidInput."""
    shared = exchange(ephemeral, theirs) + exchange(own, theirs)
    return _keys(shared, session, fingerprint, public_of(ephemeral), theirs)


def answerers_keys(session: bytes, member: Member, *, ephemeral: X25519PrivateKey, theirs: bytes) -> ExchangeKeys:
    """`member`: who knocks; `theirs`: its ephemeral key. Raises InvalidInput."""
    shared = exchange(ephemeral, theirs) + exchange(ephemeral, member.agreement)
    return _keys(shared, session, member.fingerprint, theirs, public_of(ephemeral))


def _keys(shared: bytes, session: bytes, fingerprint: bytes, returners: bytes, answerers: bytes) -> ExchangeKeys:
    said = b"kafila return" + session + fingerprint + returners + answerers
    transcript = hashlib.sha256(said).digest()
    material = derive(shared, b"kafila return keys" + transcript, 64)
    return ExchangeKeys(material[:32], material[32:], transcript)
