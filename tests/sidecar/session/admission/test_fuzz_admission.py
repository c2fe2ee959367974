"""Hostile bytes to whatever a stranger, a newcomer or a host may say before anybody is a member."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.session.admission.doorstep import MOST_KNOCKS, STEPS, Doorstep, ProvedMember
from kafila_sidecar.session.admission.gathering import GatheringPace, Homecoming
from kafila_sidecar.session.admission.host import (
    HOST_CONTEXT,
    MOST_EXCHANGES,
    NEWCOMER_CONTEXT,
    AdmissionAnswer,
    Enrol,
    HostAdmission,
)
from kafila_sidecar.session.admission.knocker import Knocker
from kafila_sidecar.session.admission.newcomer import Newcomer
from kafila_sidecar.session.admission.pake import Guesses
from kafila_sidecar.session.admission.proving import ANSWERER_CONTEXT, PROOF, RETURNER_CONTEXT
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.channel.upkeep import Upkeep
from kafila_sidecar.session.membership.identity import make_identity, public_key_of
from kafila_sidecar.session.membership.log import replay
from kafila_sidecar.session.membership.seal import Sealer
from kafila_sidecar.session.rendezvous.address import parse_address
from kafila_sidecar.session.rendezvous.code import Code, parse_code
from tests.sidecar.session.trust_world import SESSION, MemoryStore, entropy, new_host, newcomer, parsed, wish
from tests.support.fuzz import INPUTS, fuzz

pytestmark = pytest.mark.fuzz

CODE = Code(7, ("ocean", "velvet", "lamp"))
IDENTITY = make_identity()
BODY = ring_pb2.EnrolBody(
    name="zoe",
    certificate=IDENTITY.der,
    agreement=IDENTITY.agreement,
    version="1",
    planner=1,
    mlx_lm_version="1",
    protocol=1,
)


def admission() -> HostAdmission:
    return HostAdmission(
        code=CODE,
        guesses=Guesses(MemoryStore()),
        versions=Versions("1", 1, "1"),
        offer=lambda: ring_pb2.OfferBody(session=SESSION),
        may_admit=lambda: None,
        entropy=entropy("host"),
    )


def conversation(host: HostAdmission) -> tuple[Newcomer, list[bytes]]:
    """A newcomer with an offer, and all that was said."""
    newcomer = Newcomer(CODE, entropy("newcomer"))
    step: ring_pb2.Admission | None = newcomer.start()
    said = []
    while step is not None:
        answer = host.receive(1, step, 0.0)
        assert not isinstance(answer, Enrol)
        said += [step.SerializeToString(), answer.admission.SerializeToString()]
        step = newcomer.receive(answer.admission)
    said.append(newcomer.enrol(BODY).SerializeToString())
    return newcomer, said


@pytest.mark.parametrize(
    ("read", "samples"),
    [
        (parse_code, ["7-ocean-velvet-lamp", " 7 Ocean_velvet lamp@192.0.2.7:7770#abcdefghij234567klmn"]),
        (parse_address, ["192.0.2.7:7770#abcdefghij234567klmn", "grpc+insecure://[::1]:1", "a.example:65535"]),
    ],
)
def test_text_when_hostile_then_typed(read: Callable[[str], object], samples: list[str]) -> None:
    taken = fuzz(lambda data: read(data.decode("utf-8", "replace")), [text.encode() for text in samples])
    assert len(samples) <= taken < INPUTS


def test_certificates_when_hostile_then_typed() -> None:
    assert fuzz(public_key_of, [IDENTITY.der]) >= 1


def test_admission_when_a_strangers_steps_are_hostile_then_nobody_is_enrolled() -> None:
    host = admission()
    _, said = conversation(admission())
    number = 0

    def receive(data: bytes) -> None:
        nonlocal number
        number += 1
        if number % 1000 == 0:
            host.renew(CODE)  # it would be paused for good after the first few guesses
        outcome = host.receive(number % 100, parsed(ring_pb2.Admission, data), float(number))
        assert not isinstance(outcome, Enrol)
        assert host.exchanges <= MOST_EXCHANGES

    fuzz(receive, said)


def test_newcomer_when_the_rendezvous_answers_are_hostile_then_it_believes_none() -> None:
    _, said = conversation(admission())
    fresh = Newcomer(CODE, entropy("fresh"))
    fresh.start()

    def receive(data: bytes) -> None:
        waiting = copy.copy(fresh)
        waiting._pake = copy.copy(fresh._pake)
        step = waiting.receive(parsed(ring_pb2.Admission, data))
        assert step is not None
        assert step.HasField("confirm")

    fuzz(receive, [answer for answer in said[1::2] if len(answer) > 40])


def test_admission_when_who_proved_the_code_enrols_with_hostile_bytes_then_typed() -> None:
    admitting, host = admission(), new_host()
    newcomer, _ = conversation(admitting)
    seal = Sealer(newcomer._pake.keys.newcomer_seal, NEWCOMER_CONTEXT, entropy("seal"))
    exchange = admitting._exchanges[1]
    founded = host.log

    def enrol(data: bytes) -> None:
        admitting._exchanges[1] = copy.copy(exchange)
        outcome = admitting.receive(1, ring_pb2.Admission(enrol=seal.seal(data)), 0.0)
        if not isinstance(outcome, Enrol):
            raise InvalidInput("refused")
        body = outcome.body
        host.log = replay(SESSION, founded.entries)
        Upkeep(host).admit(body, 2)

    assert fuzz(enrol, [BODY.SerializeToString()]) >= 1


def offer_read(newcomer: Newcomer) -> None:
    assert newcomer.state == "offered"


def admitted_read(newcomer: Newcomer) -> None:
    """As `Approach.enrol` goes on."""
    log = replay(SESSION, newcomer.admitted.log)
    member = log.member(newcomer.admitted.name)
    if member is None or member.fingerprint != IDENTITY.fingerprint:
        raise InvalidInput("somebody else")
    key = newcomer.admitted.key
    Replica(identity=IDENTITY, self_name=member.name, log=log, key=key, entropy=entropy())


def refusal_read(_: Newcomer) -> None:
    raise AssertionError("a refusal is an error")


@pytest.mark.parametrize(
    ("state", "step", "then"),
    [
        ("confirming", "offer", offer_read),
        ("enrolling", "admitted", admitted_read),
        ("enrolling", "refused", refusal_read),
    ],
)
def test_newcomer_when_the_host_seals_hostile_bytes_then_typed(
    state: str, step: str, then: Callable[[Newcomer], None]
) -> None:
    newcomer, _ = conversation(admission())
    seal = Sealer(newcomer._pake.keys.host_seal, HOST_CONTEXT, entropy("seal"))
    admitted, _ = Upkeep(new_host()).admit(wish("zoe", IDENTITY), 2)
    samples = {
        "offer": ring_pb2.OfferBody(session=SESSION, confirm_mac=newcomer._pake.keys.host_mac),
        "admitted": admitted,
        "refused": ring_pb2.Refusal(code="NOT_FOUND", sentence="no"),
    }

    def receive(data: bytes) -> None:
        waiting = copy.copy(newcomer)
        waiting.state, waiting.offer, waiting.admitted = state, ring_pb2.OfferBody(), ring_pb2.AdmittedBody()
        waiting._pake = copy.copy(newcomer._pake)
        waiting._pake.state = "confirming"
        fields: dict[str, Any] = {step: seal.seal(data)}
        assert waiting.receive(ring_pb2.Admission(**fields)) is None
        then(waiting)

    taken = fuzz(receive, [samples[step].SerializeToString()])
    assert (taken > 0) == (step != "refused")


# ---- Coming back


def returning() -> tuple[Doorstep, Knocker, Replica, Replica]:
    host = new_host()
    ada = newcomer(host, "ada")
    doorstep = Doorstep(
        log=lambda: host.log,
        name="host",
        identity=host.identity,
        versions=Versions("1", 1, "1"),
        entropy=entropy("door"),
    )
    knocker = Knocker(
        log=replay(SESSION, host.log.entries),
        identity=ada.identity,
        versions=Versions("1", 1, "1"),
        entropy=entropy("knock"),
        vote_for=lambda _: b"",
    )
    return doorstep, knocker, host, ada


def exchange() -> tuple[list[bytes], Knocker, ProvedMember, Doorstep, Replica]:
    """All that is said until the proof, and who says it."""
    doorstep, knocker, host, _ = returning()
    said = [knocker.knock()]
    challenge = doorstep.receive(2, said[0], 0.0)
    assert isinstance(challenge, AdmissionAnswer)
    said.append(challenge.admission)
    proof = knocker.receive(challenge.admission)
    assert isinstance(proof, ring_pb2.Admission)
    said.append(proof)
    proved = doorstep.receive(2, proof, 0.0)
    assert isinstance(proved, ProvedMember)
    return [one.SerializeToString() for one in said], knocker, proved, doorstep, host


def test_doorstep_when_a_strangers_steps_are_hostile_then_nobody_has_proved_anything() -> None:
    said, *_ = exchange()
    doorstep, *_ = returning()
    number = 0

    def receive(data: bytes) -> None:
        nonlocal number
        number += 1
        admission = parsed(ring_pb2.Admission, data)
        if admission.WhichOneof("step") not in STEPS:
            raise InvalidInput("none of its steps")
        assert not isinstance(doorstep.receive(number % 100, admission, float(number)), ProvedMember)
        assert len(doorstep._knocks) <= MOST_KNOCKS

    fuzz(receive, said)


def test_doorstep_when_a_member_seals_a_hostile_proof_then_typed_or_nothing() -> None:
    doorstep, knocker, *_ = returning()
    challenge = doorstep.receive(2, knocker.knock(), 0.0)
    assert isinstance(challenge, AdmissionAnswer)
    knock = doorstep._knocks[2]
    keys = knock.keys
    seal = Sealer(keys.returner_seal, RETURNER_CONTEXT, entropy("seal"))

    def receive(data: bytes) -> None:
        doorstep._knocks[2] = knock
        if doorstep.receive(2, ring_pb2.Admission(proof=seal.seal(data)), 0.0) is None:
            raise InvalidInput("nothing")

    signed = ring_pb2.ProofBody(signature=knocker._identity.sign(PROOF, keys.transcript), version="1", planner=1)
    assert fuzz(receive, [signed.SerializeToString()]) >= 1


@pytest.mark.parametrize("step", ["welcome", "wait", "refused"])
def test_knocker_when_who_answers_seals_hostile_bytes_then_typed(step: str) -> None:
    _, knocker, proved, doorstep, host = exchange()
    Upkeep(host).take_back(proved.member, 2)
    answers = {
        "welcome": doorstep.welcome(proved, name="ada", key=host.keys.key, log=host.log),
        "wait": doorstep.wait(proved),
        "refused": doorstep.refuse(proved, InvalidInput("no")),
    }
    sealed = getattr(answers[step].admission, step)
    plain = Sealer(proved.keys.answerer_seal, ANSWERER_CONTEXT, entropy("open")).open(sealed)
    seal = Sealer(proved.keys.answerer_seal, ANSWERER_CONTEXT, entropy("seal"))

    def receive(data: bytes) -> None:
        fields: dict[str, Any] = {step: seal.seal(data)}
        copy.copy(knocker).receive(ring_pb2.Admission(**fields))

    assert fuzz(receive, [plain]) >= 1


def test_knocker_when_the_rendezvous_answers_hostile_bytes_then_it_believes_none() -> None:
    said, *_ = exchange()
    _, knocker, *_ = returning()
    knocker.knock()

    def receive(data: bytes) -> None:
        copy.copy(knocker).receive(parsed(ring_pb2.Admission, data))

    fuzz(receive, said[1:2])


def test_gathering_when_mail_is_hostile_then_nobody_leads_by_it() -> None:
    said, *_ = exchange()
    _, _, host, ada = returning()
    bob = newcomer(host, "bob")
    gathering = Homecoming(
        log=replay(SESSION, host.log.entries),
        name="bob",
        identity=bob.identity,
        versions=Versions("1", 1, "1"),
        entropy=entropy("bob"),
        pace=GatheringPace(),
        now=0.0,
    )
    gathering.attending({1, 2}, 0.0)
    number = 0

    def receive(data: bytes) -> None:
        nonlocal number
        number += 1
        outputs = gathering.receive(number % 3, parsed(ring_pb2.Admission, data), float(number))
        assert all(isinstance(output, AdmissionAnswer) for output in outputs)

    assert ada.self_name == "ada"
    fuzz(receive, said)
