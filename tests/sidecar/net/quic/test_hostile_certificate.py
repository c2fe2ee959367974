"""A peer that shows any bytes as its certificate: its own attempt ends in a typed way, and nothing else is touched."""

import asyncio
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.net.link.endpoint import Endpoint
from tests.sidecar.net.people import LinkPerson, dial, echo, linked, person
from tests.sidecar.net.quic.test_neighbour import HIGH, LOW, QuicEnd, two_ends
from tests.sidecar.net.wire import DatagramWire
from tests.support import fuzz

HANDSHAKES = max(1, fuzz.INPUTS // 100)  # each costs some ten milliseconds


class ShownCertificate:
    """In place of a certificate."""

    def __init__(self, der: bytes) -> None:
        self._der = der

    def public_bytes(self, encoding: Encoding) -> bytes:
        return self._der


def liar(shown: bytes, claimed: bytes) -> LinkPerson:
    """Has its own key, another member's fingerprint, and shows what it likes."""
    return LinkPerson(cast(x509.Certificate, ShownCertificate(shown)), person().private_key, claimed)


def der_of(somebody: LinkPerson) -> bytes:
    return somebody.certificate.public_bytes(Encoding.DER)


def of_version_87(der: bytes) -> bytes:
    """X.509 knows versions 0 to 2; the certificate library has an error of its own kind for others."""
    changed = der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x57", 1)
    assert changed != der
    return changed


def refused(shown: bytes, *, dials: bool) -> QuicEnd:
    """The honest end of one handshake with a liar, who `dials` or listens."""
    wire = DatagramWire(delay_s=0.001)
    a, b = (
        two_ends(wire, dialler=liar(shown, LOW.fingerprint))
        if dials
        else two_ends(wire, listener=liar(shown, HIGH.fingerprint))
    )
    a.dial()
    honest = b if dials else a
    wire.run(1, until=lambda: (honest.core.refusal or honest.ended) is not None)
    assert not honest.is_established
    return honest


@pytest.mark.parametrize("dials", [True, False])
def test_handshake_when_the_certificate_has_a_version_that_there_is_not_then_failed(dials: bool) -> None:
    honest = refused(of_version_87(der_of(person())), dials=dials)
    ending = honest.core.refusal or honest.ended
    assert ending is not None
    assert ending.kind == "failed"
    assert "InvalidVersion" in ending.detail


def test_listener_when_a_liar_came_first_then_the_real_dialler_gets_through() -> None:
    honest = refused(of_version_87(der_of(LOW)), dials=True)
    real = QuicEnd(honest.wire, LOW, HIGH, honest.there, honest.here)
    real.dial()
    assert honest.wire.run(5, until=lambda: real.is_established and honest.is_established)


@pytest.mark.fuzz
@pytest.mark.parametrize("dials", [True, False])
def test_handshake_when_the_certificate_is_hostile_then_refused_and_nothing_raises(dials: bool) -> None:
    samples = [der_of(LOW), of_version_87(der_of(HIGH)), der_of(person())]
    taken = fuzz.fuzz(lambda der: refused(der, dials=dials), samples, inputs=HANDSHAKES, errors=())
    assert taken == HANDSHAKES + len(samples)


async def test_endpoint_when_a_liar_dials_then_only_its_own_link_fails() -> None:
    escaped: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: escaped.append(context))
    async with linked(on_listener=echo) as pair:
        listener = max((person() for _ in range(8)), key=lambda one: one.fingerprint)
        stranger = liar(of_version_87(der_of(person())), bytes(32))
        far = Endpoint.open(host="127.0.0.1")
        here = pair.listener_endpoint
        ends = await asyncio.gather(
            dial(far, stranger, listener, here, deadline_s=0.5),
            dial(here, listener, stranger, far, deadline_s=0.5),
            return_exceptions=True,
        )
        assert [type(end) for end in ends] == [Unavailable, Unavailable]
        stream = await pair.dialler.open(7)
        await stream.send(b"still here")
        assert await stream.receive(5) == b"still here"
        await far.close()
    assert escaped == []
