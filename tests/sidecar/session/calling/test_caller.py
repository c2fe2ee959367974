"""Members call each other: who may be again is told where the session is, and nobody else hears anything."""

import os
import random
from dataclasses import replace

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput, KafilaError
from kafila_sidecar.session.calling.caller import ANSWER_EVERY_S, MOST_LEARNT, Caller, HeardCall, KnownRoom
from kafila_sidecar.session.calling.line import LARGEST_CALL_BYTES, line_to
from kafila_sidecar.session.keeping.kept import KeptPlace, KeptSession
from kafila_sidecar.session.membership.entries import admit, found_log
from kafila_sidecar.session.membership.identity import Identity, make_identity
from kafila_sidecar.session.membership.log import replay
from kafila_sidecar.session.rendezvous.address import parse_address
from kafila_sidecar.session.rendezvous.mailbox import MailboxPlace
from tests.sidecar.session.channel_world import TERMS
from tests.sidecar.session.village import Village

SESSION = bytes(range(16))
ADA_AT = ("192.0.2.9", 4000)
OLD = KeptPlace(parse_address("192.0.2.7:7770#jlyz4dfazcnx7dpb4mdg"), MailboxPlace(7, 2, host=1, secret=b"s" * 32))
NEW = KnownRoom(parse_address("198.51.100.3:7771#jlyz4dfazcnx7dpb4mdh"), 12)


class Couple:
    """Hal and Ada, each with what it keeps."""

    def __init__(self) -> None:
        self.hal_identity, self.ada_identity = make_identity(), make_identity()
        self.log = found_log(self.hal_identity, session=SESSION, terms=TERMS, name="hal", mailbox=1)
        ada = self.ada_identity
        admit(self.log, self.hal_identity, name="ada", certificate=ada.der, agreement=ada.agreement, mailbox=2)
        self.hal, self.ada = self.kept("hal", self.hal_identity), self.kept("ada", ada)
        self.hal = self.hal.reached(self.log.members[1], [ADA_AT])
        self.hals, self.adas = Caller(lambda: self.hal, os.urandom), Caller(lambda: self.ada, os.urandom)

    def kept(self, name: str, identity: Identity) -> KeptSession:
        log = replay(SESSION, self.log.entries)
        return KeptSession(identity=identity, name=name, log=log, key=bytes(32), places=(OLD,))

    def call(self, *here: KnownRoom) -> bytes:
        ((datagram, target),) = self.hals.calls(here)
        assert target == ADA_AT
        return datagram


def test_call_when_a_member_answers_then_the_caller_knows_where_the_session_is() -> None:
    pair = Couple()
    call = pair.call()
    heard = pair.adas.receive(call, [NEW], is_in=True, now=0.0)
    assert len(heard.answer) <= len(call) <= LARGEST_CALL_BYTES
    assert pair.hals.receive(heard.answer, [], is_in=False, now=0.1) == HeardCall(b"", is_in=True)
    assert pair.hals.learnt == (NEW,)
    pair.hals.forget(NEW)
    assert not pair.hals.learnt


def test_call_when_the_caller_waits_in_a_room_then_the_other_one_learns_of_it() -> None:
    pair = Couple()
    heard = pair.adas.receive(pair.call(NEW), [], is_in=False, now=0.0)
    assert pair.adas.learnt == (NEW,)
    assert not heard.is_in


def test_call_when_it_is_another_sessions_or_damaged_or_reflected_then_nobody_hears_anything() -> None:
    pair, others = Couple(), Couple()
    call = pair.call()
    with pytest.raises(Denied):
        others.adas.receive(call, [NEW], is_in=True, now=0.0)
    with pytest.raises(Denied):
        pair.hals.receive(call, [NEW], is_in=True, now=0.0)  # its own
    chance = random.Random(1)
    for _ in range(300):
        damaged = bytearray(call)
        damaged[chance.randrange(len(call))] ^= 1 << chance.randrange(8)
        with pytest.raises(Denied):
            pair.adas.receive(bytes(damaged), [NEW], is_in=True, now=0.0)
    for size in (0, 1, 9, 21, LARGEST_CALL_BYTES + 1):
        with pytest.raises(Denied):
            pair.adas.receive(call[:1] + bytes(size), [NEW], is_in=True, now=0.0)


def test_answer_when_it_is_old_or_was_not_asked_for_then_it_teaches_nothing() -> None:
    pair = Couple()
    answer = pair.adas.receive(pair.call(), [NEW], is_in=True, now=0.0).answer
    for _ in range(4):
        pair.call()
    with pytest.raises(Denied):
        pair.hals.receive(answer, [], is_in=False, now=9.0)
    assert pair.hals.learnt == ()


def test_call_when_it_is_repeated_then_it_is_answered_now_and_then_only() -> None:
    pair = Couple()
    call = pair.call()
    answered = [pair.adas.receive(call, [NEW], is_in=True, now=at).answer for at in (0.0, 0.1, ANSWER_EVERY_S, 0.3)]
    assert [bool(answer) for answer in answered] == [True, False, True, False]


@pytest.mark.parametrize("reason", ["lost", "left", "removed"])
def test_call_when_the_caller_is_out_then_only_who_was_lost_is_answered(reason: str) -> None:
    village = Village("ada", "bob")
    host, ada = village["host"].replica, village["ada"].replica
    ada_log = replay(ada.log.session, ada.log.entries)
    village.do("host", village["host"].upkeep.remove("ada", reason))

    def kept(name: str, identity: Identity, log: object) -> KeptSession:
        return KeptSession(identity=identity, name=name, log=log, key=bytes(32), places=(OLD,))  # type: ignore[arg-type]

    adas = kept("ada", ada.identity, ada_log)
    adas = adas.reached(ada_log.members[0], [ADA_AT])
    calls = Caller(lambda: adas, os.urandom).calls([])
    hosts = Caller(lambda: kept("host", host.identity, host.log), os.urandom)
    if reason == "lost":
        assert hosts.receive(calls[0][0], [NEW], is_in=True, now=0.0).answer
    else:
        with pytest.raises(Denied):
            hosts.receive(calls[0][0], [NEW], is_in=True, now=0.0)
        assert hosts.calls([NEW]) == []


def test_rooms_when_a_member_says_nonsense_or_very_many_then_few_good_ones_are_kept() -> None:
    pair = Couple()
    line = line_to(SESSION, pair.hal_identity, pair.log.members[1])
    for number in (0, 2**31, 5):
        room = ring_pb2.SessionRoom(address="nonsense" if number == 5 else str(NEW.address), room=number)
        body = ring_pb2.CallBody(number=bytes(16), rooms=[room])
        with pytest.raises(InvalidInput):
            pair.adas.receive(line.seal(body, os.urandom), [], is_in=False, now=0.0)
    for number in range(1, 30):
        said = replace(NEW, number=number)
        pair.adas.receive(pair.call(said), [], is_in=False, now=float(number))
    assert [room.number for room in pair.adas.learnt] == list(range(29, 29 - MOST_LEARNT, -1))


def test_line_when_a_member_has_no_good_key_then_typed() -> None:
    pair = Couple()
    with pytest.raises(KafilaError):
        line_to(SESSION, pair.hal_identity, replace(pair.log.members[1], agreement=bytes(32)))
