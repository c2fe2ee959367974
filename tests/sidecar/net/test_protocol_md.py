"""docs/protocol.md's hex examples are what both sides of the relay, and STUN, send and take."""

import pytest
from aioice.stun import Class, Message, Method

from kafila_rendezvous.config import RendezvousLimits
from kafila_rendezvous.pace import Pace
from kafila_rendezvous.rooms.secret import Secrets, key_from
from kafila_rendezvous.udp.relay import Relay
from kafila_rendezvous.udp.stun import SocketPlace, Stun
from kafila_rendezvous.udp.token import Tokens
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.relay.client import ChannelBound, RelayClient, Send
from kafila_sidecar.net.relay.end import Token
from tests.support.docs import ROOT, Document

example = Document("docs/protocol.md").hex
SERVER, MEMBER = ("192.0.2.1", 7770), ("198.51.100.7", 40_000)


def pace() -> Pace:
    return Pace(per_s=1.0, burst=100, salt=b"")


def test_stun_when_asked_as_documented_then_the_documents_answer() -> None:
    asked = Message(Method.BINDING, Class.REQUEST, bytes(range(1, 13)), {"CHANGE-REQUEST": 6})
    assert bytes(asked) == example("stun request")
    server = Stun(addresses=("192.0.2.1", "192.0.2.2"), ports=(7770, 7771), pace=pace())
    answer = server.receive(example("stun request"), MEMBER, SocketPlace(0, 0), 0.0)
    assert answer.datagram == example("stun answer")


def test_relay_when_client_and_server_talk_then_each_datagram_is_the_documents() -> None:
    random_server = iter([b"c" * 32, bytes.fromhex("0a0b0c0d")])
    random_client = iter([bytes(range(1, 9)), bytes(range(11, 19))])
    tokens = Tokens(secret=b"s" * 32, ttl_s=3600.0, bytes_per_s=8 * 1024 * 1024)
    relay = Relay(
        tokens=tokens, limits=RendezvousLimits(), pace=pace(), entropy=lambda size: next(random_server)[:size]
    )
    client = RelayClient(lambda: next(random_client))

    def answered(datagram: bytes) -> bytes:
        sending = relay.receive(datagram, MEMBER, 0.0)
        assert sending is not None
        return bytes(sending[0])

    path: Address = client.open(SERVER, 0.0)
    token = Token(*tokens.issue(serial=1, mailbox=1, peer=2, now=0.0), 3600.0)
    assert client.use(path, token, 0.0) == [Send(example("relay bind"), SERVER)]
    assert answered(example("relay bind")) == example("relay challenge")
    assert client.receive(example("relay challenge"), SERVER, 0.0) == [Send(example("relay bind again"), SERVER)]
    assert answered(example("relay bind again")) == example("relay bound")
    assert client.receive(example("relay bound"), SERVER, 0.0) == [ChannelBound(path)]
    assert client.wrap([b"\x01\x02\x03"], path) == ([example("relay data")], SERVER)


def test_mailbox_secret_when_made_then_the_documents_and_known_again() -> None:
    secrets = Secrets(key_from(b"p" * 32))
    assert secrets.make(serial=1, room=7, mailbox=2) == example("mailbox secret")
    assert secrets.serial_in(example("mailbox secret"), room=7, mailbox=2) == 1


@pytest.mark.parametrize("document", ["docs/protocol.md", "proto/RING.md"])
def test_document_when_it_names_files_of_the_project_then_they_are_there(document: str) -> None:
    named = Document(document).paths()
    assert named
    places = (ROOT, (ROOT / document).parent)
    assert [path for path in named if not any(list(place.glob(path)) for place in places)] == []
