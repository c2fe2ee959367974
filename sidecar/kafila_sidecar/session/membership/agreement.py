"""What two members of a session share and nobody else does, from their X25519 keys in the membership log (RFC 7748).

Nothing here depends on the session's key: who is removed never knew what two others share.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from kafila_sidecar.errors import InvalidInput

REMEMBERED_KEYS = 256  # who checks a log checks the same keys again with each member that comes

_TRIAL_KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))


@dataclass(frozen=True, slots=True)
class PairKeys:
    """32 bytes each, the same at both ends."""

    seal: bytes = field(repr=False)  # for messages that only the other one reads
    link: bytes = field(repr=False)  # for `Endpoint.connect`


def pair_keys(session: bytes, own: X25519PrivateKey, theirs: bytes) -> PairKeys:
    """`theirs`: the other member's agreement key, as the log pins it. Raises InvalidInput for no good key."""
    ours = own.public_key().public_bytes_raw()
    material = derive(exchange(own, theirs), b"kafila pair" + session + b"".join(sorted((ours, theirs))), 64)
    return PairKeys(seal=material[:32], link=material[32:])


def exchange(own: X25519PrivateKey, theirs: bytes) -> bytes:
    """X25519's shared secret; raises InvalidInput for a key of another length, or one that gives everybody the same."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError as error:
        raise InvalidInput("a member's agreement key is not a good X25519 key") from error


@lru_cache(maxsize=REMEMBERED_KEYS)
def check_agreement(theirs: bytes) -> None:
    """Raises InvalidInput unless others can agree on secrets with this key."""
    exchange(_TRIAL_KEY, theirs)


def derive(secret: bytes, info: bytes, size_bytes: int) -> bytes:
    """HKDF-SHA256 without salt (RFC 5869)."""
    derived: bytes = HKDF(algorithm=SHA256(), length=size_bytes, salt=None, info=info).derive(secret)
    return derived
