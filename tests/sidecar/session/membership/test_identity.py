"""A member's key and certificate, and that aioquic takes them on both sides."""

import ssl

import pytest
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from kafila_rendezvous.certificate import make_key_pair
from kafila_sidecar.errors import Denied, InvalidInput
from kafila_sidecar.session.membership.identity import (
    Identity,
    fingerprint,
    make_identity,
    public_key_of,
    verify,
)


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
