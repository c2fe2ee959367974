"""A member's identity in one session: an Ed25519 key with a self-signed certificate, and an X25519 key to agree by.
The log pins both, and by them a machine that was lost comes back as the member that it was.

The certificate's dates and subject say nothing, and nothing checks them: trust comes from the membership log.
"""

import datetime
import hashlib
import warnings
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.x509.oid import NameOID

from kafila_sidecar.errors import Denied, InvalidInput

LARGEST_CERTIFICATE_BYTES = 2048
REMEMBERED_KEYS = 256  # every control message is checked with its sender's

_NOT_BEFORE = datetime.datetime(2020, 1, 1)
_NOT_AFTER = datetime.datetime(9999, 12, 31)  # RFC 5280 section 4.1.2.5: no well-defined end


class Identity:
    """Private key and certificate; `certificate` and `private_key` are what aioquic's configuration takes."""

    def __init__(
        self, private_key: Ed25519PrivateKey, certificate: x509.Certificate, agreement_key: X25519PrivateKey
    ) -> None:
        self.private_key = private_key
        self.certificate = certificate
        self.agreement_key = agreement_key
        self.agreement = agreement_key.public_key().public_bytes_raw()  # 32 bytes
        self.der = certificate.public_bytes(serialization.Encoding.DER)
        self.fingerprint = fingerprint(self.der)

    def sign(self, purpose: bytes, message: bytes) -> bytes:
        """Ed25519 over purpose and message, 64 bytes; a signature for one purpose is none for another."""
        return self.private_key.sign(_bound(purpose, message))


def fingerprint(certificate_der: bytes) -> bytes:
    """SHA-256 of a certificate, 32 bytes: what both ends of a link compare."""
    return hashlib.sha256(certificate_der).digest()


def make_identity() -> Identity:
    """Fresh keys, with a certificate for the one that signs."""
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kafila member")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
        .sign(key, algorithm=None)
    )
    return Identity(key, certificate, X25519PrivateKey.generate())


def identity_from(signing_key: bytes, certificate_der: bytes, agreement_key: bytes) -> Identity:
    """The identity with these keys, 32 bytes each; raises InvalidInput where they don't belong together."""
    public = public_key_of(certificate_der)
    try:
        private = Ed25519PrivateKey.from_private_bytes(signing_key)
        agreement = X25519PrivateKey.from_private_bytes(agreement_key)
    except ValueError as error:
        raise InvalidInput(f"a member's private key can't be read: {error}") from error
    if private.public_key().public_bytes_raw() != public.public_bytes_raw():
        raise InvalidInput("a member's private key is not its certificate's")
    return Identity(private, x509.load_der_x509_certificate(certificate_der), agreement)


@lru_cache(maxsize=REMEMBERED_KEYS)
def public_key_of(certificate_der: bytes) -> Ed25519PublicKey:
    """The key in a member's certificate; raises InvalidInput for anything but a small Ed25519 certificate."""
    if len(certificate_der) > LARGEST_CERTIFICATE_BYTES:
        raise InvalidInput(
            f"a member's certificate of {len(certificate_der)} bytes is over {LARGEST_CERTIFICATE_BYTES} bytes"
        )
    try:
        with warnings.catch_warnings(action="error"):  # what will be refused in future is refused now
            key = x509.load_der_x509_certificate(certificate_der).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, Warning) as error:
        raise InvalidInput(f"a member's certificate can't be read: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInput("a member's certificate holds no Ed25519 key")
    return key


def verify(key: Ed25519PublicKey, purpose: bytes, message: bytes, signature: bytes) -> None:
    """Raises Denied unless `signature` is the key's over this purpose and message."""
    try:
        key.verify(signature, _bound(purpose, message))
    except InvalidSignature as error:
        raise Denied(f"a signature over {purpose.decode('ascii')} is not its signer's") from error


def _bound(purpose: bytes, message: bytes) -> bytes:
    return b"kafila/1 " + purpose + b"\x00" + message
