"""A gRPC channel to a rendezvous: plain, by the public certificate authorities, or pinned by a fingerprint.

gRPC has no pinning: the certificate is fetched over a connection of its own, compared, and then is the only root.
"""

import asyncio
import ssl
from collections.abc import Awaitable
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID, NameOID

from kafila_rendezvous.certificate import FINGERPRINT_LETTERS, fingerprint
from kafila_rendezvous.pings import MEMBER_OPTIONS
from kafila_sidecar.errors import Denied, Unavailable, from_code
from kafila_sidecar.session.rendezvous.address import RendezvousAddress

CALL_DEADLINE_S = 5.0

_NO_ANSWER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)

_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own, so that its end is this member's departure
    *MEMBER_OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_receive_message_length", 512 * 1024),
]


async def dial(address: RendezvousAddress) -> grpc.aio.Channel:
    """Connects lazily, except that a pinned certificate is fetched now.

    Raises Unavailable when nothing answers within `CALL_DEADLINE_S`, Denied for another certificate than the pinned.
    """
    if address.insecure:
        return grpc.aio.insecure_channel(address.target, options=[*_OPTIONS, ("grpc.enable_http_proxy", 0)])
    if address.fingerprint is None:
        return grpc.aio.secure_channel(address.target, grpc.ssl_channel_credentials(), options=_OPTIONS)
    der = await _fetch_certificate(address)
    _compare(der, address)
    certificate = x509.load_der_x509_certificate(der)
    options = [
        *_OPTIONS,
        ("grpc.ssl_target_name_override", _name_in(certificate)),
        ("grpc.enable_http_proxy", 0),
    ]
    credentials = grpc.ssl_channel_credentials(certificate.public_bytes(Encoding.PEM))
    return grpc.aio.secure_channel(address.target, credentials, options=options)


async def answered(call: Awaitable[Any], address: RendezvousAddress) -> Any:
    """A call's reply; what fails, or can't be read, becomes a typed error."""
    try:
        reply = await call
    except grpc.aio.AioRpcError as error:
        if error.code() in _NO_ANSWER:
            raise no_answer(address) from error
        sentence = error.details() or "the rendezvous refused without a word"
        raise from_code(error.code().name, sentence) from error
    if reply is None:  # gRPC's word for what it can't read
        raise no_answer(address)
    return reply


def no_answer(address: RendezvousAddress) -> Unavailable:
    """The one sentence for a rendezvous that can't be reached, in whatever way."""
    advice = "check its address and your network"
    if not address.insecure and address.fingerprint is None:
        advice += ", and add the #fingerprint that it printed at start if its certificate is its own"
    return Unavailable(f"the rendezvous at {address.target} does not answer: {advice}")


async def _fetch_certificate(address: RendezvousAddress) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the fingerprint decides
    context.set_alpn_protocols(["h2"])
    try:
        async with asyncio.timeout(CALL_DEADLINE_S):
            _, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    except (OSError, TimeoutError, UnicodeError) as error:  # the last one for what is no name of a host
        raise no_answer(address) from error
    try:
        der: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    if der is None:
        raise no_answer(address)
    return der


def _compare(der: bytes, address: RendezvousAddress) -> None:
    wanted = (address.fingerprint or "")[:FINGERPRINT_LETTERS]
    if not fingerprint(der).startswith(wanted):
        raise Denied(
            f"the rendezvous at {address.target} shows another certificate than the fingerprint after # names: "
            "ask for the code or address again"
        )


def _name_in(certificate: x509.Certificate) -> str:
    try:
        names = certificate.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
        assert isinstance(names, x509.SubjectAlternativeName)
        dns = names.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        dns = []
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return dns[0] if dns else str(common[0].value) if common else ""
