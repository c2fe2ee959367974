"""Newcomer and host pumped against each other, without a network."""

from dataclasses import dataclass

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput, KafilaError, Refused, Unavailable
from kafila_sidecar.session.admission.host import (
    MOST_EXCHANGES,
    MOST_GUESSES,
    OFFER_TTL_S,
    PROOF_TTL_S,
    AdmissionAnswer,
    Enrol,
    HostAdmission,
)
from kafila_sidecar.session.admission.newcomer import PAUSED, HostBusy, Newcomer
from kafila_sidecar.session.admission.pake import Guesses
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.rendezvous.code import Code
from tests.sidecar.session.trust_world import MemoryStore, entropy

CODE = Code(7, ("ocean", "velvet", "lamp"))
OFFER = ring_pb2.OfferBody(session=bytes(16), host="host", members_present=1)
BODY = ring_pb2.EnrolBody(name="anna", certificate=b"der", version="1.0", planner=1, mlx_lm_version="2.0", protocol=1)


@dataclass
class Policy:
    """A `may_admit` that a test can turn."""

    obstacle: KafilaError | None = None

    def __call__(self) -> KafilaError | None:
        return self.obstacle


def admission(policy: Policy | None = None, guesses: Guesses | None = None) -> HostAdmission:
    return HostAdmission(
        code=CODE,
        guesses=guesses or Guesses(MemoryStore()),
        versions=Versions("1.0", planner=1, mlx_lm="2.0"),
        offer=lambda: ring_pb2.OfferBody.FromString(OFFER.SerializeToString()),
        may_admit=policy or Policy(),
        entropy=entropy("host"),
    )


def pump(host: HostAdmission, newcomer: Newcomer, step: ring_pb2.Admission | None, now: float = 0.0) -> Enrol | None:
    """Carries messages until nobody has one; the enrolment, if it came to that."""
    while step is not None:
        outcome = host.receive(5, step, now)
        if isinstance(outcome, Enrol):
            return outcome
        step = newcomer.receive(outcome.admission)
    return None


def offered(host: HostAdmission, now: float = 0.0) -> Newcomer:
    newcomer = Newcomer(CODE, entropy("newcomer"))
    pump(host, newcomer, newcomer.start(), now)
    assert newcomer.state == "offered"
    return newcomer


def test_admission_when_code_is_right_then_offer_enrolment_and_key_arrive() -> None:
    guesses = Guesses(MemoryStore())
    host = admission(guesses=guesses)
    newcomer = offered(host)
    assert (newcomer.offer.host, newcomer.offer.members_present) == ("host", 1)
    enrol = pump(host, newcomer, newcomer.enrol(BODY))
    assert enrol is not None
    assert enrol.body == BODY
    answer = host.admit(5, ring_pb2.AdmittedBody(name="anna", key=bytes(32)))
    assert newcomer.receive(answer.admission) is None
    assert (newcomer.state, newcomer.admitted.name, newcomer.admitted.key) == ("admitted", "anna", bytes(32))
    assert guesses.count == 0


def test_admission_when_words_are_wrong_then_denied_in_words_and_counted() -> None:
    guesses = Guesses(MemoryStore())
    newcomer = Newcomer(Code(7, ("ocean", "velvet", "lava")), entropy())
    with pytest.raises(Denied, match="words do not match"):
        pump(admission(guesses=guesses), newcomer, newcomer.start())
    assert guesses.count == 1


def test_admission_when_session_is_full_then_only_who_knows_the_code_is_told_why() -> None:
    policy = Policy(Refused("the session has its 3 members"))
    newcomer = Newcomer(CODE, entropy())
    with pytest.raises(Refused, match="has its 3 members"):
        pump(admission(policy), newcomer, newcomer.start())
    guesser = Newcomer(Code(7, ("ocean", "velvet", "lava")), entropy())
    with pytest.raises(Denied):
        pump(admission(policy), guesser, guesser.start())


def test_admission_when_session_fills_up_after_the_offer_then_refused_at_enrolment() -> None:
    policy = Policy()
    host = admission(policy)
    newcomer = offered(host)
    policy.obstacle = Refused("the session has its 3 members")
    with pytest.raises(Refused, match="has its 3 members"):
        pump(host, newcomer, newcomer.enrol(BODY))


@pytest.mark.parametrize(
    ("planner", "mlx_lm", "sentence"),
    [(2, "2.0", "planner 1, your machine planner 2"), (1, "", "mlx-lm 2.0, your machine mlx-lm none")],
)
def test_admission_when_versions_differ_then_refused_with_both(planner: int, mlx_lm: str, sentence: str) -> None:
    host = admission()
    newcomer = offered(host)
    with pytest.raises(Refused, match=sentence):
        pump(host, newcomer, newcomer.enrol(ring_pb2.EnrolBody(planner=planner, mlx_lm_version=mlx_lm, protocol=1)))


def test_admission_when_protocol_differs_then_refused_in_own_words_and_no_guess() -> None:
    guesses = Guesses(MemoryStore())
    newcomer = Newcomer(CODE, entropy())
    start = newcomer.start()
    start.start.protocol = 2
    with pytest.raises(Refused, match="another protocol version"):
        pump(admission(guesses=guesses), newcomer, start)
    assert guesses.count == 0


def test_refusal_when_rendezvous_invents_one_then_its_sentence_is_not_shown() -> None:
    for code, error in (("FAILED_PRECONDITION", Refused), ("PERMISSION_DENIED", Denied), ("EVIL", Unavailable)):
        newcomer = Newcomer(CODE, entropy())
        newcomer.start()
        with pytest.raises(error) as caught:
            newcomer.receive(ring_pb2.Admission(refusal=ring_pb2.Refusal(code=code, sentence="visit evil.example")))
        assert "evil" not in str(caught.value)


def test_exchange_when_steps_come_out_of_order_then_ended() -> None:
    sealed = ring_pb2.Sealed(nonce=bytes(12), ciphertext=bytes(40))
    for step in (
        ring_pb2.Admission(),
        ring_pb2.Admission(confirm=ring_pb2.PakeConfirm(mac=bytes(32))),
        ring_pb2.Admission(enrol=sealed),
        ring_pb2.Admission(offer=sealed),
        ring_pb2.Admission(refused=sealed),
    ):
        outcome = admission().receive(5, step, 0.0)
        assert isinstance(outcome, AdmissionAnswer)
        assert outcome.admission.refusal.code == "INVALID_ARGUMENT"
        newcomer = Newcomer(CODE, entropy())
        with pytest.raises(InvalidInput):
            newcomer.receive(step)


def test_enrolment_when_it_is_sealed_for_somebody_else_then_refused() -> None:
    host = admission()
    offered(host)
    stranger = ring_pb2.Admission(enrol=ring_pb2.Sealed(nonce=bytes(12), ciphertext=bytes(60)))
    outcome = host.receive(5, stranger, 0.0)
    assert isinstance(outcome, AdmissionAnswer)
    assert outcome.admission.WhichOneof("step") == "refused"


@pytest.mark.parametrize(("ttl", "proved"), [(PROOF_TTL_S, False), (OFFER_TTL_S, True)])
def test_exchange_when_its_time_is_over_then_forgotten(ttl: float, proved: bool) -> None:
    for late, alive in ((ttl - 1, True), (ttl, False)):
        host = admission()
        newcomer = Newcomer(CODE, entropy())
        if proved:
            pump(host, newcomer, newcomer.start())
            step = newcomer.enrol(BODY)
        else:
            reply = host.receive(5, newcomer.start(), 0.0)
            assert isinstance(reply, AdmissionAnswer)
            step = newcomer.receive(reply.admission) or ring_pb2.Admission()
        outcome = host.receive(5, step, late)
        refused = isinstance(outcome, AdmissionAnswer) and outcome.admission.HasField("refusal")
        assert refused != alive


def test_exchange_when_newcomer_departs_then_forgotten_but_counted() -> None:
    guesses = Guesses(MemoryStore())
    host = admission(guesses=guesses)
    host.receive(5, Newcomer(CODE, entropy()).start(), 0.0)
    host.departed(5)
    assert guesses.count == 1
    with pytest.raises(InvalidInput):
        host.admit(5, ring_pb2.AdmittedBody())


WRONG = Code(7, ("ocean", "velvet", "lava"))


def guess(host: HostAdmission, mailbox: int = 6, now: float = 0.0) -> None:
    """One wrong guess, confirmed or left."""
    newcomer = Newcomer(WRONG, entropy(f"guess {mailbox}"))
    reply = host.receive(mailbox, newcomer.start(), now)
    if isinstance(reply, AdmissionAnswer) and reply.admission.HasField("reply") and mailbox % 2:
        host.receive(mailbox, newcomer.receive(reply.admission) or ring_pb2.Admission(), now)
    host.departed(mailbox)


def refusal(host: HostAdmission, code: Code, now: float = 0.0) -> KafilaError:
    newcomer = Newcomer(code, entropy("knocks"))
    start = newcomer.start()
    with pytest.raises(KafilaError) as caught:
        pump(host, newcomer, start, now)
    return caught.value


def test_admission_when_code_was_guessed_too_often_then_paused_for_right_and_wrong_words_alike() -> None:
    store = MemoryStore()
    host = admission(guesses=Guesses(store))
    for mailbox in range(MOST_GUESSES):
        assert not host.is_paused
        guess(host, mailbox)
    assert host.is_paused
    right, wrong = refusal(host, CODE), refusal(host, WRONG)
    assert isinstance(right, Refused)
    assert str(right) == str(wrong) == PAUSED
    assert store.saved[-1] == MOST_GUESSES


def test_admission_when_paused_and_started_again_then_still_paused() -> None:
    store = MemoryStore()
    first = admission(guesses=Guesses(store))
    for mailbox in range(MOST_GUESSES):
        guess(first, mailbox)
    again = admission(guesses=Guesses(store))
    assert again.is_paused
    assert str(refusal(again, CODE)) == PAUSED


def test_admission_when_there_is_a_new_code_then_joining_goes_on_and_the_old_words_are_wrong() -> None:
    store = MemoryStore()
    host = admission(guesses=Guesses(store))
    for mailbox in range(MOST_GUESSES):
        guess(host, mailbox)
    fresh = Code(7, ("zoo", "zone", "zero"))
    assert host.renew(fresh) == []
    assert not host.is_paused
    assert isinstance(refusal(host, CODE), Denied)
    newcomer = Newcomer(fresh, entropy("invited"))
    pump(host, newcomer, newcomer.start())
    assert newcomer.state == "offered"
    assert store.saved[-1] == 1


def test_admission_when_code_changes_meanwhile_then_who_came_by_the_old_one_is_told() -> None:
    host = admission()
    proved = offered(host)
    (answer,) = host.renew(Code(7, ("zoo", "zone", "zero")))
    with pytest.raises(Denied, match="has a new code"):
        proved.receive(answer.admission)
    late = host.receive(5, offered(admission()).enrol(BODY), 0.0)
    assert isinstance(late, AdmissionAnswer)
    assert late.admission.refusal.code == "INVALID_ARGUMENT"


def test_admission_when_many_knock_at_once_then_some_are_asked_to_come_again_and_no_guess_is_free() -> None:
    host = admission()
    waiting = [Newcomer(CODE, entropy(f"newcomer {mailbox}")) for mailbox in range(MOST_GUESSES)]
    replies = [host.receive(mailbox, newcomer.start(), 0.0) for mailbox, newcomer in enumerate(waiting)]
    assert not host.is_paused
    assert isinstance(refusal(host, CODE), HostBusy)
    for mailbox, (newcomer, reply) in enumerate(zip(waiting, replies, strict=True)):
        assert isinstance(reply, AdmissionAnswer)
        offer = host.receive(mailbox, newcomer.receive(reply.admission) or ring_pb2.Admission(), 0.0)
        assert isinstance(offer, AdmissionAnswer)
        newcomer.receive(offer.admission)
        assert newcomer.state == "offered"
    assert offered(host).state == "offered"


def test_admission_when_unconfirmed_exchanges_run_out_of_time_then_paused() -> None:
    host = admission()
    for mailbox in range(MOST_GUESSES):
        host.receive(mailbox, Newcomer(WRONG, entropy(f"{mailbox}")).start(), 0.0)
    assert str(refusal(host, CODE, now=PROOF_TTL_S)) == PAUSED


def test_admission_when_many_hold_offers_then_bounded() -> None:
    host = admission()
    for mailbox in range(100, 100 + MOST_EXCHANGES):
        newcomer = Newcomer(CODE, entropy(f"newcomer {mailbox}"))
        step: ring_pb2.Admission | None = newcomer.start()
        while step is not None:
            outcome = host.receive(mailbox, step, 0.0)
            assert isinstance(outcome, AdmissionAnswer)
            step = newcomer.receive(outcome.admission)
    assert isinstance(refusal(host, CODE), HostBusy)
    assert host.exchanges == MOST_EXCHANGES
