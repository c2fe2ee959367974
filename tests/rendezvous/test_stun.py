"""The STUN server's core: what it answers, from where, and what it leaves unanswered."""

import pytest
from aioice.stun import Class, Message, Method, parse_message

from kafila_rendezvous.errors import LimitReached, Malformed, RendezvousError
from kafila_rendezvous.pace import Pace
from kafila_rendezvous.udp.stun import CHANGE_ADDRESS, CHANGE_PORT, SocketPlace, Stun
from tests.rendezvous.stun_client import TRANSACTION, mapped, request
from tests.support import fuzz

FIRST = SocketPlace(0, 0)
CALLER = ("198.51.100.7", 40_000)
BOTH = CHANGE_ADDRESS | CHANGE_PORT


def server(*addresses: str, ports: tuple[int, ...] = (7770, 7771), burst: int = 10_000) -> Stun:
    return Stun(addresses=addresses, ports=ports, pace=Pace(per_s=1.0, burst=burst, salt=b"salt"))


TWO = ("192.0.2.1", "192.0.2.2")


def test_binding_when_asked_then_tells_the_callers_address_and_its_own() -> None:
    answer = server(*TWO).receive(request(), CALLER, FIRST, 0.0)
    response = parse_message(answer.datagram)
    assert (response.message_class, response.transaction_id) == (Class.RESPONSE, TRANSACTION)
    assert response.attributes == {
        "XOR-MAPPED-ADDRESS": CALLER,
        "RESPONSE-ORIGIN": ("192.0.2.1", 7770),
        "OTHER-ADDRESS": ("192.0.2.2", 7771),
    }
    assert answer.place == FIRST


@pytest.mark.parametrize(
    ("change", "at", "leaves", "origin"),
    [
        (0, SocketPlace(0, 1), SocketPlace(0, 1), ("192.0.2.1", 7771)),
        (CHANGE_PORT, FIRST, SocketPlace(0, 1), ("192.0.2.1", 7771)),
        (CHANGE_ADDRESS, FIRST, SocketPlace(1, 0), ("192.0.2.2", 7770)),
        (BOTH, FIRST, SocketPlace(1, 1), ("192.0.2.2", 7771)),
        (BOTH, SocketPlace(1, 1), FIRST, ("192.0.2.1", 7770)),
    ],
)
def test_binding_when_a_change_is_asked_then_the_answer_leaves_from_there(
    change: int, at: SocketPlace, leaves: SocketPlace, origin: tuple[str, int]
) -> None:
    answer = server(*TWO).receive(request(change_request=change), CALLER, at, 0.0)
    assert answer.place == leaves
    assert parse_message(answer.datagram).attributes["RESPONSE-ORIGIN"] == origin


def test_binding_when_the_server_has_one_address_then_no_other_address_is_told() -> None:
    one = server("192.0.2.1")
    attributes = parse_message(one.receive(request(), CALLER, FIRST, 0.0).datagram).attributes
    assert "OTHER-ADDRESS" not in attributes
    assert one.receive(request(change_request=CHANGE_PORT), CALLER, FIRST, 0.0).place == SocketPlace(0, 1)


def test_binding_when_the_server_listens_on_all_addresses_then_it_names_no_origin() -> None:
    attributes = parse_message(server("").receive(request(), CALLER, FIRST, 0.0).datagram).attributes
    assert attributes == {"XOR-MAPPED-ADDRESS": CALLER}


def test_binding_when_the_caller_has_ipv6_then_its_address_is_told() -> None:
    caller = ("2001:db8::7", 40_000)
    assert mapped(server("2001:db8::1").receive(request(), caller, FIRST, 0.0).datagram) == caller


def test_binding_when_it_has_a_fingerprint_then_so_has_the_answer() -> None:
    asked = Message(Method.BINDING, Class.REQUEST, TRANSACTION)
    asked.add_fingerprint()
    answer = server(*TWO).receive(bytes(asked), CALLER, FIRST, 0.0)
    assert "FINGERPRINT" in parse_message(answer.datagram).attributes


@pytest.mark.parametrize(
    ("datagram", "named"),
    [
        (request(change_request=CHANGE_ADDRESS), 0x0003),
        (b"\x00\x01\x00\x08\x21\x12\xa4\x42" + TRANSACTION + b"\x00\x27\x00\x04\x12\x34\x00\x00", 0x0027),
    ],
)
def test_binding_when_something_is_asked_that_it_cannot_do_then_420_names_it(datagram: bytes, named: int) -> None:
    answer = server("192.0.2.1").receive(datagram, CALLER, FIRST, 0.0).datagram
    refusal = parse_message(answer)
    assert (refusal.message_class, refusal.error_code) == (Class.ERROR, 420)
    assert answer[-8:] == b"\x00\x0a\x00\x02" + named.to_bytes(2, "big") + b"\x00\x00"


def test_binding_when_an_optional_attribute_is_unknown_then_answered() -> None:
    datagram = b"\x00\x01\x00\x08\x21\x12\xa4\x42" + TRANSACTION + b"\xc0\x01\x00\x04abcd"
    assert mapped(server(*TWO).receive(datagram, CALLER, FIRST, 0.0).datagram) == CALLER


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        request()[:19],
        request()[:4] + bytes(4) + request()[8:],
        bytes(Message(Method.BINDING, Class.RESPONSE, TRANSACTION)),
        bytes(Message(Method.BINDING, Class.INDICATION, TRANSACTION)),
        bytes(Message(Method.ALLOCATE, Class.REQUEST, TRANSACTION)),
        request(data=bytes(600)),
        request() + b"\x00",
        request(username="x")[:-4] + b"\xff\xff\xff\xff",
        b"\x00\x01\x00\x06\x21\x12\xa4\x42" + TRANSACTION + b"\x00\x03\x00\x02ab",
    ],
)
def test_datagram_when_it_is_no_binding_request_then_malformed(datagram: bytes) -> None:
    with pytest.raises(Malformed):
        server(*TWO).receive(datagram, CALLER, FIRST, 0.0)


def test_binding_when_asked_too_often_then_exhausted_and_others_are_answered() -> None:
    stun = server(*TWO, burst=2)
    for _ in range(2):
        stun.receive(request(), CALLER, FIRST, 0.0)
    with pytest.raises(LimitReached):
        stun.receive(request(), ("198.51.100.7", 50_000), FIRST, 0.0)
    stun.receive(request(), ("198.51.100.8", 40_000), FIRST, 0.0)


@pytest.mark.fuzz
def test_datagram_when_random_or_damaged_then_an_answer_or_a_typed_error() -> None:
    stun = server(*TWO, burst=10**9)

    def read(datagram: bytes) -> None:
        answer = stun.receive(datagram, CALLER, FIRST, 0.0)
        assert answer.datagram[0] == 1
        assert len(answer.datagram) <= 100

    good = [request(), request(change_request=BOTH), request(username="someone")]
    fuzz.fuzz(read, good, seed=1, errors=(RendezvousError,))
