"""A member's key and certificate, and that aioquic takes them on both sides."""

import ssl
from pathlib import Path

import pytest
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from kafila_rendezvous.certificate import make_key_pair
from kafila_sidecar.errors import Denied, InvalidInput, Refused
from kafila_sidecar.session.membership.identity import (
    Identity,
    fingerprint,
    load_identity,
    make_identity,
    public_key_of,
    save_identity,
    verify,
)


def test_identity_when_saved_then_loads_the_same_and_is_private(tmp_path: Path) -> None:
    identity = make_identity()
    folder = tmp_path / "session"
    save_identity(identity, folder)
    loaded = load_identity(folder)
    assert (loaded.der, loaded.fingerprint) == (identity.der, identity.fingerprint)
    verify(public_key_of(identity.der), b"test", b"message", loaded.sign(b"test", b"message"))
    assert (folder / "identity.pem").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", [None, b"", b"nonsense", make_key_pair().key_pem + make_key_pair().certificate_pem])
def test_load_identity_when_file_is_missing_or_foreign_then_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "identity.pem").write_bytes(content)
    with pytest.raises(Refused):
        load_identity(tmp_path)


def test_save_identity_when_folder_cannot_be_made_then_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused):
        save_identity(make_identity(), tmp_path / "file" / "session")


def test_verify_when_anything_differs_then_denied() -> None:
    identity, other = make_identity(), make_identity()
    signature = identity.sign(b"purpose", b"message")
    key = public_key_of(identity.der)
    for wrong_key, purpose, message, made in (
        (public_key_of(other.der), b"purpose", b"message", signature),
        (key, b"other", b"message", signature),
        (key, b"purpose", b"massage", signature),
        (key, b"purpose", b"message", b""),
        (key, b"purpose", b"message", signature[:-1] + bytes([signature[-1] ^ 1])),
    ):
        with pytest.raises(Denied):
            verify(wrong_key, purpose, message, made)


def test_public_key_when_certificate_is_foreign_then_invalid() -> None:
    pem = make_key_pair().certificate_pem
    p256 = x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
    for der in (b"", b"\x30", p256, make_identity().der[:-1], bytes(5000)):
        with pytest.raises(InvalidInput):
            public_key_of(der)


class AsksForCertificate(QuicConnection):
    """A server that wants the client's certificate too."""

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        self.tls._request_client_certificate = True


def quic(identity: Identity, *, is_client: bool) -> QuicConfiguration:
    return QuicConfiguration(
        is_client=is_client,
        alpn_protocols=["test"],
        certificate=identity.certificate,
        private_key=identity.private_key,
        verify_mode=ssl.CERT_NONE,
    )


def test_identity_when_used_by_aioquic_then_both_sides_see_the_fingerprint() -> None:
    ours, theirs = make_identity(), make_identity()
    client = QuicConnection(configuration=quic(ours, is_client=True))
    server = AsksForCertificate(
        configuration=quic(theirs, is_client=False),
        original_destination_connection_id=client.original_destination_connection_id,
    )
    client.connect(("192.0.2.1", 1), now=0.0)
    for turn in range(6):
        now = turn / 100
        for data, _ in client.datagrams_to_send(now):
            server.receive_datagram(data, ("192.0.2.2", 2), now)
        for data, _ in server.datagrams_to_send(now):
            client.receive_datagram(data, ("192.0.2.1", 1), now)
    for seen, expected in ((client, theirs), (server, ours)):
        peer = seen.tls._peer_certificate
        assert peer is not None
        assert fingerprint(peer.public_bytes(serialization.Encoding.DER)) == expected.fingerprint
