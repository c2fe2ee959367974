"""When a better plan is taken by itself."""

import pytest

from kafila_sidecar.session.coordination.effects import LookForBetter
from kafila_sidecar.session.coordination.rest import PAUSE_S, PlanRest
from kafila_sidecar.session.hosting.adoption import IDLE_AFTER_S, Adoption
from kafila_sidecar.session.membership.members import Replanning
from tests.sidecar.session.party import formed


@pytest.mark.parametrize(
    ("name", "gain", "active_at", "adopted_at", "due"),
    [
        ("too little", 0.09, None, None, None),
        ("idle", 0.10, None, None, 0.0),
        ("an answer has just ended", 0.10, 100.0, None, 100.0 + IDLE_AFTER_S),
        ("so much that answers wait for it", 0.30, 100.0, None, 0.0),
        ("just taken another", 0.30, None, 100.0, 100.0 + PAUSE_S),
        ("just taken another, and busy", 0.10, 450.0, 100.0, 450.0 + IDLE_AFTER_S),
        ("nothing better any more", 0.0, None, None, None),
    ],
)
def test_adoption_when_a_better_plan_is_found_then_it_is_due_by_the_rule(
    name: str, gain: float, active_at: float | None, adopted_at: float | None, due: float | None
) -> None:
    adoption = Adoption(rest=PlanRest())
    if adopted_at is not None:
        adoption.adopted(adopted_at)
    if active_at is not None:
        adoption.active(active_at)
    adoption.found(0.5)
    adoption.found(gain)
    assert adoption.due() == due, name


@pytest.mark.parametrize(("mode", "tells"), [(Replanning.ASK, True), (Replanning.NEVER, False)])
def test_adoption_when_people_want_to_decide_then_nothing_is_ever_due(mode: Replanning, tells: bool) -> None:
    adoption = Adoption(mode, rest=PlanRest())
    adoption.found(9.0)
    assert adoption.due() is None
    assert adoption.tells is tells


def test_adoption_when_planned_for_another_reason_then_what_was_found_before_is_void() -> None:
    adoption = Adoption(rest=PlanRest())
    adoption.found(0.5)
    adoption.planned()
    assert adoption.due() is None


def test_rest_when_the_host_says_what_is_left_then_no_less_than_was_known_and_no_more_than_a_pause() -> None:
    rest = PlanRest()
    for said_s, left_s in [(0.0, 0.0), (120.0, 120.0), (0.0, 120.0), (2 * PAUSE_S, PAUSE_S)]:
        rest.learn(said_s, now=1000.0)
        assert rest.left_s(1000.0) == left_s
    assert rest.left_s(1000.0 + PAUSE_S + 1.0) == 0.0
    rest.begin(1400.0)
    rest.slept(60.0)  # the machine did, and its running time stood still
    assert rest.until == 1400.0 + PAUSE_S - 60.0


# ---- Through the host's decisions


def test_session_when_a_path_turns_better_then_the_host_looks_once_and_takes_a_plan_that_gains_enough() -> None:
    party = formed()
    before, coordinator = party.serving["ada"], party.coordinator
    looks = coordinator.linked("bob", "cyd", "direct", 0.001, party.now)
    (look,) = looks
    assert isinstance(look, LookForBetter)
    assert {edge["rtt_s"] for edge in look.problem["edges"] if edge["between"] == ["bob", "cyd"]} == {0.001}
    assert coordinator.linked("cyd", "bob", "direct", 0.001, party.now) == []
    coordinator.found_better(look.proposal.epoch, 0.2)
    assert coordinator.next_timer() == 0.0
    party.advance(1.0)
    assert party.serving["ada"] == party.serving["bob"] > before
    coordinator.linked("bob", "cyd", "direct", 0.0001, party.now)
    coordinator.found_better(party.proposals[-1].epoch, 0.9)
    assert coordinator.next_timer() == 1.0 + PAUSE_S


def test_session_when_the_better_plan_is_of_an_epoch_that_is_over_then_it_is_not_taken() -> None:
    party = formed()
    party.coordinator.found_better(party.proposals[-1].epoch - 1, 0.9)
    assert party.coordinator.next_timer() is None


def test_newcomer_when_the_session_is_ready_then_it_is_an_entry_point_before_it_has_measured() -> None:
    party = formed(wanted=3)
    party.join("dan")
    assert party.serving["dan"] == party.serving["ada"]
    assert frozenset(("ada", "dan")) in party.links
    assert "dan" not in party.loads
    looks = party.coordinator.measured("dan", {"memory_bytes": 1}, party.now)
    assert [one for one in looks if isinstance(one, LookForBetter)]


def test_session_when_somebody_wants_the_better_plan_then_it_is_taken_whatever_the_rule_says() -> None:
    party = formed()
    before, coordinator = party.serving["ada"], party.coordinator
    coordinator.adoption.mode = Replanning.ASK
    assert coordinator.replan(party.now) == []  # there is none
    coordinator.found_better(party.proposals[-1].epoch, 0.06)
    assert coordinator.next_timer() is None
    party.obey(coordinator.replan(party.now))
    party.pump()
    assert party.serving["ada"] > before
    assert coordinator.replan(party.now) == []


def test_newcomer_when_answers_run_then_its_plan_is_taken_once_they_have_ended() -> None:
    party = formed(wanted=3)
    party.join("dan")
    coordinator = party.coordinator
    looks = coordinator.measured("dan", {"memory_bytes": 1}, party.now)
    (look,) = [one for one in looks if isinstance(one, LookForBetter)]
    assert {member["name"] for member in look.problem["members"]} == {"ada", "bob", "cyd", "dan"}
    for _ in range(4):  # answers, one after another
        coordinator.adoption.active(party.now)
        coordinator.found_better(look.proposal.epoch, 0.2)
        party.advance(IDLE_AFTER_S - 1.0)
        assert "dan" not in party.loads
    party.advance(1.0)
    assert "dan" in party.loads
    assert set(party.serving.values()) == {party.proposals[-1].epoch}
