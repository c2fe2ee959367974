"""The server's self-signed certificate, and the fingerprint by which clients pin it.

P-256, since gRPC's TLS refuses Ed25519. Its dates say nothing: who trusts it compares the fingerprint.
"""

import base64
import datetime
import hashlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kafila_rendezvous.errors import CannotServe

logger = logging.getLogger(__name__)

SERVER_NAME = "kafila-rendezvous"
FINGERPRINT_LETTERS = 20  # of base32, 100 bits: a second certificate with the same start is out of reach

_NOT_BEFORE = datetime.datetime(2020, 1, 1)
_NOT_AFTER = datetime.datetime(9999, 12, 31)  # RFC 5280 section 4.1.2.5: no well-defined end


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A PEM certificate chain with its PEM private key, as gRPC takes them."""

    certificate_pem: bytes
    key_pem: bytes

    @property
    def fingerprint(self) -> str:
        certificate = x509.load_pem_x509_certificate(self.certificate_pem)
        return fingerprint(certificate.public_bytes(serialization.Encoding.DER))


def fingerprint(certificate_der: bytes) -> str:
    """The start of the certificate's SHA-256 in lower-case base32, `FINGERPRINT_LETTERS` long."""
    digest = base64.b32encode(hashlib.sha256(certificate_der).digest()).decode("ascii").lower()
    return digest[:FINGERPRINT_LETTERS]


def make_key_pair() -> KeyPair:
    """A fresh P-256 key with a self-signed certificate for `SERVER_NAME`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, SERVER_NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(
        certificate_pem=certificate.public_bytes(serialization.Encoding.PEM),
        key_pem=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def read_key_pair(certificate: Path, key: Path) -> KeyPair:
    """The owner's own files; raises CannotServe when they can't be read or hold no PEM certificate."""
    try:
        pair = KeyPair(certificate.read_bytes(), key.read_bytes())
        x509.load_pem_x509_certificate(pair.certificate_pem)
        serialization.load_pem_private_key(pair.key_pem, password=None)
    except (OSError, ValueError, TypeError) as error:
        raise CannotServe(f"can't use certificate {certificate} with key {key}: {error}") from error
    return pair


def keep_key_pair(folder: Path) -> KeyPair:
    """The key pair kept in `folder`, made at the first call; the folder is 0700, the key 0600.

    One that a crash or a disk has damaged is set aside for a new one, by which the address' fingerprint is another.
    """
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    if certificate.exists() and key.exists():
        try:
            return _matching(read_key_pair(certificate, key))
        except CannotServe as error:
            _set_aside(error, certificate, key)
    pair = make_key_pair()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_whole(key, pair.key_pem)
        _write_whole(certificate, pair.certificate_pem)  # the last one: without it there is no pair
    except OSError as error:
        raise CannotServe(f"can't keep the certificate in {folder}: {error}") from error
    return pair


def _matching(pair: KeyPair) -> KeyPair:
    """Raises CannotServe for a key that is not the certificate's."""
    certificate = x509.load_pem_x509_certificate(pair.certificate_pem)
    key = serialization.load_pem_private_key(pair.key_pem, password=None)
    if certificate.public_key() != key.public_key():
        raise CannotServe("the kept key is not the kept certificate's")
    return pair


def _write_whole(path: Path, content: bytes) -> None:
    """Private, and there as a whole or not at all."""
    beside = path.with_name(path.name + ".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _set_aside(why: CannotServe, *paths: Path) -> None:
    logger.warning("%s; both are set aside as .broken, and made anew: the fingerprint is another", why)
    try:
        for path in paths:
            path.replace(path.with_name(path.name + ".broken"))
    except OSError as error:
        raise CannotServe(f"{why}, and can't be set aside: {error}") from why
