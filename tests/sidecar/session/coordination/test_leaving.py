"""One that is to leave serves until the others have planned without it."""

import pytest

from kafila_sidecar.session.coordination.effects import ComputePlan, LookWithout
from kafila_sidecar.session.coordination.leaving import DRAIN_DEADLINE_S, Leaving
from tests.sidecar.session.party import formed, plan_for


@pytest.mark.parametrize(
    ("name", "after_s", "serves", "is_over"),
    [
        ("answers run", 1.0, True, False),
        ("none runs any more", 1.0, False, True),
        ("they run for too long", DRAIN_DEADLINE_S, True, True),
    ],
)
def test_leaving_when_begun_then_it_is_over_with_the_answers_or_at_its_deadline(
    name: str, after_s: float, serves: bool, is_over: bool
) -> None:
    leaving = Leaving()
    assert not leaving.is_over(100.0, serves=False)
    leaving.begin(100.0)
    assert leaving.next_timer() == 100.0 + DRAIN_DEADLINE_S
    assert leaving.is_over(100.0 + after_s, serves=serves) is is_over, name


def test_leaving_when_the_others_cant_go_on_then_nobody_leaves_until_it_is_asked_for_again() -> None:
    leaving = Leaving()
    leaving.begin(0.0)
    leaving.receive_refusal("2 GB too little")
    assert (leaving.kept_back, leaving.has_begun, leaving.next_timer()) == ("2 GB too little", False, None)
    assert not leaving.is_over(DRAIN_DEADLINE_S, serves=False)
    leaving.begin(1.0)
    assert leaving.kept_back == ""


@pytest.mark.parametrize("who", ["ada", "bob", "cyd"])
def test_session_when_somebody_is_to_leave_then_the_others_serve_without_it_before_it_goes(who: str) -> None:
    party = formed()
    before = party.serving["ada"]
    party.obey(party.coordinator.leaves(who))
    party.pump()
    others = {"ada", "bob", "cyd"} - {who}
    assert set(party.proposals[-1].plan.order) == others
    assert set(party.serving) == {"ada", "bob", "cyd"}  # it is an entry point
    assert party.serving[who] > before
    assert party.aside[who] == f"{who} is leaving"
    if who != "ada":
        epoch = party.serving["ada"]
        party.leave(who)
        assert party.serving["ada"] == epoch  # nothing is planned for its going any more


def test_session_when_it_requires_who_is_to_leave_then_that_is_said_and_the_plan_stands() -> None:
    party = formed(require=("bob",))
    epoch = party.serving["ada"]
    party.obey(party.coordinator.leaves("bob"))
    party.pump()
    assert "without bob" in party.kept_back["bob"]
    assert party.serving["ada"] == epoch


def test_session_when_the_rest_is_too_small_then_that_is_said_and_the_plan_stands() -> None:
    party = formed()
    epoch = party.serving["ada"]
    (look,) = party.coordinator.leaves("cyd")
    assert isinstance(look, LookWithout)
    assert {member["name"] for member in look.problem["members"]} == {"ada", "bob"}
    refusal = plan_for(ComputePlan(0, {**look.problem, "model": {"blocks": 101}}))
    party.obey(party.coordinator.planned_without("cyd", refusal, party.now))  # type: ignore[arg-type]
    party.pump()
    assert "too large" in party.kept_back["cyd"]
    assert party.serving["ada"] == epoch


def test_session_when_it_is_planned_again_meanwhile_then_who_is_to_leave_goes_once_that_serves() -> None:
    party = formed(wanted=4)
    party.join("dan")
    party.measure("dan")
    (look,) = party.coordinator.leaves("cyd")
    party.kill("dan")
    party.advance(3.0)  # another plan, with cyd; then one without it
    assert party.proposals[-1].plan.order == ("ada", "bob")
    assert isinstance(look, LookWithout)
    assert party.coordinator.planned_without("cyd", None, party.now) == []


def test_session_when_who_is_to_leave_has_no_stage_then_nothing_is_planned() -> None:
    party = formed(wanted=3)
    party.join("dan")
    assert party.coordinator.leaves("dan") == []
    assert party.coordinator.leaves("nobody") == []


def test_session_when_all_others_go_too_then_who_is_leaving_still_has_a_plan() -> None:
    party = formed()
    party.obey(party.coordinator.leaves("ada"))
    party.pump()
    party.leave("bob")
    party.leave("cyd")
    assert party.proposals[-1].plan.order == ("ada",)
    assert party.serving["ada"] == party.proposals[-1].epoch
