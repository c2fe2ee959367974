"""Members for the network tests: identities, and pairs of endpoints on loopback that are linked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.net.link.streams import OnStream
from kafila_sidecar.session.membership.identity import make_identity

SESSION = bytes(range(16))
KEY = b"the session's sealing key: 32 by"


@dataclass(frozen=True)
class LinkPerson:
    """What a link wants of a member: a key, its certificate, and the fingerprint that it goes by."""

    certificate: x509.Certificate
    private_key: Ed25519PrivateKey
    fingerprint: bytes


def person() -> LinkPerson:
    made = make_identity()
    return LinkPerson(made.certificate, made.private_key, made.fingerprint)


def two_people() -> tuple[LinkPerson, LinkPerson]:
    """The one who dials (lower fingerprint), then the one who listens."""
    low, high = sorted((person(), person()), key=lambda p: p.fingerprint)
    return low, high


async def ignore(stream: Stream) -> None:
    """A handler for ends that expect no stream."""


async def echo(stream: Stream) -> None:
    """Sends every message back."""
    while (message := await stream.receive()) is not None:
        await stream.send(message)


async def dial(
    endpoint: Endpoint,
    me: LinkPerson,
    peer: LinkPerson,
    peer_endpoint: Endpoint,
    *,
    on_stream: OnStream = ignore,
    deadline_s: float = 5.0,
    session: bytes = SESSION,
    key: bytes = KEY,
    name: str = "the-peer",
) -> Link:
    return await endpoint.connect(
        session=session,
        key=key,
        me=me,
        peer_name=name,
        peer_fingerprint=peer.fingerprint,
        candidates=peer_endpoint.candidates(),
        deadline_s=deadline_s,
        on_stream=on_stream,
    )


@dataclass
class LinkedPair:
    """Two members with a link between them; `dialler` is the end that dialled QUIC."""

    dialler: Link
    listener: Link
    listener_endpoint: Endpoint


@asynccontextmanager
async def linked(on_dialler: OnStream = ignore, on_listener: OnStream = ignore) -> AsyncIterator[LinkedPair]:
    low, high = two_people()
    one, other = Endpoint.open(host="127.0.0.1"), Endpoint.open(host="127.0.0.1")
    try:
        here, there = await asyncio.gather(
            dial(one, low, high, other, on_stream=on_dialler, name="listener"),
            dial(other, high, low, one, on_stream=on_listener, name="dialler"),
        )
        yield LinkedPair(here, there, other)
    finally:
        await one.close()
        await other.close()
