"""docs/session.md's examples are what the code makes, and what it takes."""

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from spake2 import SPAKE2_A
from spake2.parameters.ed25519 import ParamsEd25519

from kafila_planner import Plan, plan_from_json, problem_from_json
from kafila_planner.model.types import Filtering, Mapping
from kafila_proto import ring_pb2
from kafila_rendezvous.certificate import fingerprint as code_fingerprint
from kafila_sidecar.machine.measuring import network_entry
from kafila_sidecar.net.nat.behaviour import Nat
from kafila_sidecar.runtime.probe.cost import Cost
from kafila_sidecar.runtime.probe.probe import Measurement
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.serving.guessing.room import why_none
from kafila_sidecar.serving.trace import Circuit, RequestTrace
from kafila_sidecar.session.admission.host import AdmissionAnswer, HostAdmission
from kafila_sidecar.session.admission.knocker import Knocker
from kafila_sidecar.session.admission.newcomer import Newcomer
from kafila_sidecar.session.admission.pake import Guesses
from kafila_sidecar.session.admission.proving import answerers_keys, public_of, returners_keys
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.coordination import messages, speech
from kafila_sidecar.session.coordination.effects import ComputePlan, Json, Proposal
from kafila_sidecar.session.coordination.planning import check_proposal, propose
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.hosting.coordinator import Coordinator
from kafila_sidecar.session.membership import rekey
from kafila_sidecar.session.membership.agreement import pair_keys
from kafila_sidecar.session.membership.entries import found_log
from kafila_sidecar.session.membership.identity import Identity, public_key_of
from kafila_sidecar.session.membership.keyring import Keyring
from kafila_sidecar.session.membership.log import Log, replay
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.membership.seal import read_envelope, read_sealed, sign_envelope, verify_envelope
from kafila_sidecar.session.membership.succession import resign
from kafila_sidecar.session.rendezvous.code import parse_code
from tests.sidecar.session.trust_world import MemoryStore
from tests.support.docs import Document

DOC = Document("docs/session.md")
SESSION = bytes(range(16))
TERMS = ring_pb2.SessionTerms.FromString(DOC.hex("terms"))
CODE = parse_code("7-ocean-velvet-lamp@192.0.2.7:7770#jlyz4dfazcnx7dpb4mdg")
DESK = Identity(
    Ed25519PrivateKey.from_private_bytes(b"\x01" * 32),
    x509.load_der_x509_certificate(DOC.hex("certificate")),
    X25519PrivateKey.from_private_bytes(b"\x02" * 32),
)
LAB = X25519PrivateKey.from_private_bytes(b"\x03" * 32)


def drawn(letter: bytes) -> Callable[[int], bytes]:
    return lambda size: letter * size


def parcel(admission: ring_pb2.Admission) -> bytes:
    return ring_pb2.Parcel(admission=admission).SerializeToString(deterministic=True)


def founded() -> Log:
    return found_log(DESK, session=SESSION, terms=TERMS, name="desk", mailbox=1)


def admission() -> HostAdmission:
    return HostAdmission(
        code=CODE,
        guesses=Guesses(MemoryStore()),
        versions=Versions("1.0", planner=1, mlx_lm="0.32.2"),
        offer=lambda: ring_pb2.OfferBody(session=SESSION, terms=TERMS, host="desk", members_present=1),
        may_admit=lambda: None,
        entropy=drawn(b"a"),
    )


# ---- Admission


def test_admission_when_newcomer_and_host_talk_then_each_step_is_the_documents() -> None:
    newcomer, host = Newcomer(CODE, drawn(b"n")), admission()

    def answered(admission: ring_pb2.Admission | None) -> ring_pb2.Admission:
        assert admission is not None
        answer = host.receive(2, admission, 0.0)
        assert isinstance(answer, AdmissionAnswer)
        return answer.admission

    start = newcomer.start()
    assert parcel(start) == DOC.hex("start")
    reply = answered(start)
    assert parcel(reply) == DOC.hex("reply")
    confirm = newcomer.receive(reply)
    assert confirm is not None
    assert parcel(confirm) == DOC.hex("confirm")
    offer = answered(confirm)
    assert parcel(offer) == DOC.hex("offer")
    assert newcomer.receive(offer) is None
    assert newcomer.offer.SerializeToString(deterministic=True) == DOC.hex("offer body")


def test_shared_key_when_the_library_computes_it_then_the_documents() -> None:
    newcomer = SPAKE2_A(CODE.password, idA=b"kafila newcomer", idB=b"kafila admitter", entropy_f=drawn(b"n"))
    newcomer.start()
    assert newcomer.finish(DOC.hex("reply")[-33:]) == DOC.hex("shared key")
    assert (ParamsEd25519.M.to_bytes(), ParamsEd25519.N.to_bytes()) == (DOC.hex("M"), DOC.hex("N"))


def test_keys_when_derived_as_documented_then_they_confirm_as_the_code_does() -> None:
    assert DOC.hex("transcript")[-66:] == DOC.hex("start")[-33:] + DOC.hex("reply")[-33:]
    salt = hashlib.sha256(DOC.hex("transcript")).digest()
    assert salt == DOC.hex("salt")
    keys = HKDF(algorithm=SHA256(), length=128, salt=salt, info=b"kafila admission keys").derive(DOC.hex("shared key"))
    assert keys == DOC.hex("keys")
    assert hmac.digest(keys[:32], salt, "sha256") == DOC.hex("confirm")[-32:]
    assert hmac.digest(keys[32:64], salt, "sha256") == DOC.hex("host's confirmation")


# ---- Log and keys


def test_certificate_when_read_then_it_is_of_the_documents_key_and_fingerprint() -> None:
    assert public_key_of(DOC.hex("certificate")) == DESK.private_key.public_key()
    assert DOC.hex("fingerprint") == DESK.fingerprint
    assert CODE.address is not None
    assert CODE.address.fingerprint == code_fingerprint(DESK.der)


def test_founding_entry_when_made_then_the_documents_and_others_take_it() -> None:
    (signed,) = founded().entries
    assert signed.entry == DOC.hex("founding entry")
    assert signed.signature == DOC.hex("founding entry's signature")
    assert hashlib.sha256(signed.entry).digest() == DOC.hex("founding entry's hash")
    assert replay(SESSION, [signed]).host == "desk"


def test_resignation_when_signed_then_the_documents() -> None:
    place = founded().place
    assert place.data == DOC.hex("place")
    assert resign(DESK, place) == DOC.hex("resignation")


def test_pair_keys_when_either_end_derives_them_then_the_documents() -> None:
    for own, theirs in ((LAB, DESK.agreement), (DESK.agreement_key, LAB.public_key().public_bytes_raw())):
        keys = pair_keys(SESSION, own, theirs)
        assert keys.seal + keys.link == DOC.hex("pair keys")


def test_rekey_when_wrapped_then_the_documents_and_its_reader_opens_it() -> None:
    reader = Member("lab", b"", b"", LAB.public_key().public_bytes_raw(), mailbox=2, index=1)
    made = rekey.wrap(b"K" * 32, session=SESSION, number=2, readers=[reader], entropy=drawn(b"\x04"))
    assert made == DOC.hex("rekey")
    assert rekey.unwrap(DOC.hex("rekey"), session=SESSION, number=2, own=LAB, index=1) == b"K" * 32


# ---- Envelopes


def test_envelope_when_signed_and_sealed_then_the_documents() -> None:
    asking = ring_pb2.Control(ask=ring_pb2.Ask(member="lab"))
    head = DOC.hex("founding entry's hash")
    envelope = sign_envelope(
        DESK, session=SESSION, sender="desk", sequence=1, log_length=1, log_head=head, control=asking
    )
    plain = envelope.SerializeToString(deterministic=True)
    assert plain == DOC.hex("envelope")
    DESK.private_key.public_key().verify(envelope.signature, DOC.hex("signed bytes"))
    keys = Keyring(identity=DESK, session=SESSION, number=1, key=b"k" * 32, entropy=drawn(b"a"))
    assert keys.seal(plain, number=1) == DOC.hex("sealed envelope")


def test_sealed_envelope_when_it_comes_then_opened_and_understood() -> None:
    host = founded().members[0]
    keys = Keyring(identity=DESK, session=SESSION, number=1, key=b"k" * 32, entropy=drawn(b"a"))
    envelope = read_envelope(keys.open(read_sealed(DOC.hex("sealed envelope")), [host]))
    assert verify_envelope(envelope, session=SESSION, sender=host).ask.member == "lab"


# ---- JSON


def measured(name: str, rtt_s: float) -> Json:
    cost = Cost(
        device="cpu",
        dtype="bfloat16",
        block_bytes=100_000_000,
        block_s={1: 0.005, 8: 0.006},
        overhead_s=0.0001,
        head_s={1: 0.01, 8: 0.011},
        flops_per_s=1e12,
        spread=0.0,
    )
    nat = Nat(True, Mapping.ENDPOINT_INDEPENDENT, filtering=Filtering.ADDRESS_DEPENDENT, rtt_s=rtt_s)
    return {"name": name, **Measurement(cost, memory_bytes=8_000_000_000).member_json(), **network_entry(nat)}


def test_member_when_measured_then_the_documents_and_it_is_taken() -> None:
    assert measured("lab", 0.03) == DOC.json("member")
    said = messages.read("lab", ring_pb2.Control(capability=ring_pb2.Capability(member_json=DOC.text("member"))))
    assert said == messages.Measured(DOC.json("member"), "", 8_000_000_000)


def terms(model: Any) -> PlanningTerms:
    return PlanningTerms(
        members_wanted=2,
        model=model,
        context_tokens=4096,
        concurrency=1,
        require=("all",),
        extra={"reserve_bytes": 1_000_000_000, "prefill_peak_bytes": 200_000_000},
    )


async def test_problem_when_the_host_knows_members_and_links_then_the_documents() -> None:
    documented = DOC.json("problem")
    host = Coordinator(name="desk", terms=terms(documented["model"]))
    host.members_changed(["desk", "lab"], 0.0)
    host.measured("desk", measured("desk", 0.02), 0.0)
    (asked,) = host.measured("lab", measured("lab", 0.03), 0.0)
    assert isinstance(asked, ComputePlan)
    made = await propose(1, asked.problem)
    assert isinstance(made, Proposal)
    host.planned(1, made, 0.0)
    (again,) = host.linked("lab", "desk", "direct", 0.008, 0.0)
    assert again == ComputePlan(2, documented)


async def test_plan_when_proposed_then_every_member_finds_the_documents() -> None:
    problem = DOC.json("problem")
    proposal = await check_proposal(
        2,
        DOC.text("problem"),
        DOC.text("plan"),
        own=[measured("lab", 0.03)],
        terms=terms(problem["model"]),
        compute=True,
    )
    assert proposal == documented_proposal()
    said = speech.plan(proposal, problem, 0.0)
    assert (json.loads(said.plan.problem_json), json.loads(said.plan.plan_json)) == (problem, DOC.json("plan"))


def documented_proposal() -> Proposal:
    plan = plan_from_json(DOC.json("plan"))
    assert isinstance(plan, Plan)
    return Proposal(2, problem_from_json(DOC.json("problem")), plan)


def test_trace_when_a_request_was_served_then_the_documents_and_it_is_taken() -> None:
    before = ring_pb2.Replay(times=0)
    trace = RequestTrace(documented_proposal(), request="1", prompt_tokens=12, began=0.0, replay=before)
    trace.admitted(0.125)
    for at, size in ((0.375, 24_576), (0.625, 2_048), (0.875, 2_048)):
        trace.token(Circuit((0.0625, 0.03125), (0.078125, 0.046875), 0.25, size, size), at)
    trace.steps(8, why_none(StepLimits(8, 8, 8), is_wanted=False, can_forget=True, has_others=True))
    record = trace.record(reason="stop", link_rtt_s={frozenset(("desk", "lab")): 0.008})
    assert record == DOC.json("trace")
    said = messages.read("desk", ring_pb2.Control(measured=ring_pb2.Measured(trace_json=DOC.text("trace"))))
    assert said == messages.Traced(record)


def test_knock_when_the_founder_comes_back_then_the_documents() -> None:
    log = founded()
    knocker = Knocker(
        log=log, identity=DESK, versions=Versions("1.0", 1, "0.32.2"), entropy=drawn(b"\x05"), vote_for=lambda _: b""
    )
    assert parcel(knocker.knock()) == DOC.hex("knock")


def test_return_keys_when_either_end_derives_them_then_the_documents() -> None:
    ours, theirs = (X25519PrivateKey.from_private_bytes(letter * 32) for letter in (b"\x05", b"\x06"))
    desk = founded().members[0]
    at_home = returners_keys(
        SESSION, DESK.fingerprint, own=DESK.agreement_key, ephemeral=ours, theirs=public_of(theirs)
    )
    assert at_home == answerers_keys(SESSION, desk, ephemeral=theirs, theirs=public_of(ours))
    assert at_home.transcript == DOC.hex("return transcript")
    assert at_home.returner_seal + at_home.answerer_seal == DOC.hex("return keys")
