"""Two versions of Kafila meet: what works together does, and what does not is refused in words that name both."""

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput, Refused
from kafila_sidecar.session.admission.host import AdmissionAnswer, HostAdmission
from kafila_sidecar.session.admission.newcomer import Newcomer
from kafila_sidecar.session.admission.pake import Guesses
from kafila_sidecar.session.admission.versions import Protocols, Versions, check_versions, tell_offer, told_by
from kafila_sidecar.session.rendezvous.code import Code
from tests.sidecar.session.trust_world import MemoryStore, entropy

CODE = Code(7, ("ocean", "velvet", "lamp"))


def versions(
    kafila: str = "1.0", planner: int = 1, mlx_lm: str = "0.32.2", oldest: int = 1, newest: int = 1
) -> Versions:
    return Versions(kafila, planner, mlx_lm, Protocols(oldest, newest))


def admission(session: Versions) -> HostAdmission:
    return HostAdmission(
        code=CODE,
        guesses=Guesses(MemoryStore()),
        versions=session,
        offer=ring_pb2.OfferBody,
        may_admit=lambda: None,
        entropy=entropy("host"),
    )


@pytest.mark.parametrize(
    ("session", "newcomer"),
    [
        pytest.param(versions(), versions(), id="same"),
        pytest.param(versions(kafila="1.0"), versions(kafila="2.7"), id="other-package"),
        pytest.param(versions(oldest=1, newest=3), versions(oldest=2, newest=2), id="newer-host"),
        pytest.param(versions(oldest=1, newest=2), versions(oldest=2, newest=5), id="newer-newcomer"),
        pytest.param(versions(planner=7), versions(planner=7), id="same-planner"),
    ],
)
def test_versions_when_they_work_together_then_nothing_is_refused(session: Versions, newcomer: Versions) -> None:
    check_versions(session=session, newcomer=newcomer)


@pytest.mark.parametrize(
    ("session", "newcomer", "sentence"),
    [
        pytest.param(
            versions("1.3", planner=2),
            versions("1.0", planner=1),
            "this session runs planner 2, your machine planner 1: update Kafila on your machine to 1.3",
            id="older-planner",
        ),
        pytest.param(
            versions("1.0", planner=1),
            versions("1.3", planner=2),
            "this session runs planner 1, your machine planner 2: update Kafila on the session's machines to 1.3",
            id="newer-planner",
        ),
        pytest.param(
            versions(),
            versions(mlx_lm="0.31.0"),
            "this session runs mlx-lm 0.32.2, your machine mlx-lm 0.31.0: install mlx-lm 0.32.2 on your machine",
            id="other-mlx-lm",
        ),
        pytest.param(
            versions(),
            versions("1.2", planner=2, mlx_lm="0.31.0"),
            "this session runs planner 1 and mlx-lm 0.32.2, your machine planner 2 and mlx-lm 0.31.0: update Kafila on"
            " the session's machines to 1.2 and install mlx-lm 0.32.2 on your machine",
            id="planner-and-mlx-lm",
        ),
        pytest.param(
            versions("2.0", oldest=3, newest=4),
            versions("1.0", oldest=1, newest=2),
            "this session runs protocol 4, your machine protocol 2: update Kafila on your machine to 2.0",
            id="older-protocol",
        ),
        pytest.param(
            versions("1.0"),
            versions("2.0", oldest=2, newest=2),
            "this session runs protocol 1, your machine protocol 2: update Kafila on the session's machines to 2.0",
            id="newer-protocol",
        ),
        pytest.param(
            versions("1.0"),
            versions("", planner=0, mlx_lm="\x1b[2J" + "9" * 100),
            "this session runs planner 1 and mlx-lm 0.32.2, your machine planner none and mlx-lm [2J"
            + "9" * 36
            + ": update Kafila on your machine to 1.0 and install mlx-lm 0.32.2 on your machine",
            id="says-little",
        ),
    ],
)
def test_versions_when_they_can_not_work_together_then_both_are_named_and_what_to_update(
    session: Versions, newcomer: Versions, sentence: str
) -> None:
    with pytest.raises(Refused) as refused:
        check_versions(session=session, newcomer=newcomer)
    assert str(refused.value) == sentence


def test_versions_when_told_in_an_offer_then_read_as_they_are() -> None:
    offer = ring_pb2.OfferBody()
    tell_offer(versions("1.2", 3, "0.32.2", 2, 4), offer)
    assert told_by(offer) == versions("1.2", 3, "0.32.2", 2, 4)
    assert told_by(ring_pb2.EnrolBody(protocol=5)).protocols == Protocols(5, 5)


@pytest.mark.parametrize(
    ("host", "newcomer", "spoken"),
    [
        (Protocols(1, 1), Protocols(1, 1), 1),
        (Protocols(1, 3), Protocols(1, 2), 2),
        (Protocols(2, 3), Protocols(1, 5), 3),
        (Protocols(1, 1), Protocols(2, 3), None),
        (Protocols(3, 4), Protocols(1, 2), None),
    ],
)
def test_admission_when_protocols_differ_then_the_newest_that_both_speak_proves_the_code(
    host: Protocols, newcomer: Protocols, spoken: int | None
) -> None:
    assert host.common(newcomer) == spoken
    side = Newcomer(CODE, entropy("newcomer"), newcomer)
    admitting = admission(Versions("1", 1, "1", host))
    reply = admitting.receive(5, side.start(), 0.0)
    assert isinstance(reply, AdmissionAnswer)
    if spoken is None:
        with pytest.raises(Refused, match="another protocol version"):
            side.receive(reply.admission)
        return
    assert reply.admission.reply.protocol == (0 if spoken == newcomer.newest else spoken)
    confirm = side.receive(reply.admission)
    assert confirm is not None
    offer = admitting.receive(5, confirm, 0.0)
    assert isinstance(offer, AdmissionAnswer)
    assert side.receive(offer.admission) is None
    assert told_by(side.offer).protocols == host


def test_newcomer_when_the_host_goes_on_in_a_protocol_that_was_not_offered_then_invalid() -> None:
    side = Newcomer(CODE, entropy("newcomer"), Protocols(2, 3))
    reply = admission(versions(oldest=1, newest=3)).receive(5, side.start(), 0.0)
    assert isinstance(reply, AdmissionAnswer)
    reply.admission.reply.protocol = 1
    with pytest.raises(InvalidInput, match="protocol 1"):
        side.receive(reply.admission)
