"""The host's person looks at the first plan before anything is fetched."""

import pytest

from kafila_sidecar.session.coordination.effects import Division, division_of
from kafila_sidecar.session.coordination.states import State
from tests.sidecar.session.party import NAMES, CoreParty

A_DAY_S = 86_400.0


def asking() -> CoreParty:
    """Everybody came, and the plan's links stand."""
    party = CoreParty()
    party.coordinator.ask_first()
    party.measure("ada")
    for name in NAMES[1:]:
        party.join(name)
        party.measure(name)
    return party


def choose(party: CoreParty, objective: str, *, shown: Division = ()) -> None:
    party.obey(party.coordinator.choose(objective, party.now, shown=shown))
    party.pump()


def states(party: CoreParty) -> set[State]:
    return {follower.state for follower in party.machines.values()}


def test_session_when_its_host_looks_at_the_plan_then_nobody_fetches_however_long_that_takes() -> None:
    party = asking()
    assert (states(party), party.loads) == ({State.LINKING}, [])
    timer = party.coordinator.next_timer()
    assert timer is None or timer > party.now + A_DAY_S
    assert party.coordinator.handle_timer(party.now + A_DAY_S) == []


@pytest.mark.parametrize("objective", ["", "latency"])
def test_choose_when_it_is_the_plan_as_it_is_then_all_fetch_that_one(objective: str) -> None:
    party = asking()
    shown = party.proposals[-1]
    choose(party, objective)
    assert (states(party), party.proposals[-1]) == ({State.READY}, shown)


def test_choose_when_it_is_another_objective_then_all_fetch_the_plan_for_that_one() -> None:
    party = asking()
    choose(party, "throughput")
    assert (states(party), party.proposals[-1].problem.objective.value) == ({State.READY}, "throughput")


def test_choose_when_a_link_is_down_by_then_then_it_is_waited_for_as_before() -> None:
    party = asking()
    party.coordinator.unlinked("ada", "bob", party.now)
    party.coordinator.unlinked("bob", "ada", party.now)
    choose(party, "")
    assert (states(party), party.coordinator.waiting_for()) == ({State.LINKING}, ["ada to bob"])
    assert party.coordinator.next_timer() is not None
    party.obey(party.coordinator.linked("ada", "bob", "direct", 0.01, party.now))
    party.obey(party.coordinator.linked("bob", "ada", "direct", 0.01, party.now))
    party.pump()
    assert states(party) == {State.READY}


def test_start_when_its_host_looks_at_the_plan_then_it_is_taken() -> None:
    party = asking()
    party.obey(party.coordinator.start(party.now))
    party.pump()
    assert states(party) == {State.READY}


def test_start_when_there_is_no_plan_yet_then_the_one_that_is_made_waits_too() -> None:
    party = CoreParty(wanted=0)
    party.coordinator.ask_first()
    party.measure("ada")
    party.join("bob")
    party.measure("bob")
    party.obey(party.coordinator.start(party.now))
    party.pump()
    assert (states(party), party.loads) == ({State.LINKING}, [])
    choose(party, "")
    assert states(party) == {State.READY}


def test_choose_when_a_member_is_lost_meanwhile_then_the_plan_without_it_waits_too() -> None:
    party = asking()
    party.leave("cyd")
    party.write_log(tuple(name for name in NAMES if name != "cyd"))
    assert party.loads == []
    choose(party, "")
    assert states(party) == {State.READY}


def test_choose_when_nobody_is_asked_then_it_changes_nothing() -> None:
    party = asking()
    choose(party, "")
    plans = len(party.proposals)
    choose(party, "")
    assert len(party.proposals) == plans


def test_successor_when_the_host_is_lost_while_it_chose_then_it_goes_on_by_itself() -> None:
    party = asking()
    party.leave("ada")
    party.succeed()
    party.pump()
    assert State.LINKING not in states(party)


def shown_by(party: CoreParty) -> Division:
    return division_of(party.proposals[-1].plan)


OTHERWISE = (("bob", 0, 3),)


@pytest.mark.parametrize("objective", ["", "latency"])
def test_choose_when_it_is_the_plan_that_was_shown_then_all_fetch_that_one(objective: str) -> None:
    party = asking()
    choose(party, objective, shown=shown_by(party))
    assert states(party) == {State.READY}


@pytest.mark.parametrize("objective", ["", "latency"])
def test_choose_when_another_plan_was_shown_then_nothing_is_fetched_and_this_one_can_be_chosen(objective: str) -> None:
    party = asking()
    assert party.coordinator.is_outdated(objective, OTHERWISE)
    choose(party, objective, shown=OTHERWISE)
    assert (states(party), party.loads) == ({State.LINKING}, [])
    choose(party, objective, shown=shown_by(party))
    assert states(party) == {State.READY}


def test_choose_when_a_member_is_lost_after_it_was_shown_then_the_plan_without_it_is_asked_about_anew() -> None:
    party = asking()
    seen = shown_by(party)
    party.leave("cyd")
    choose(party, "", shown=seen)
    party.write_log(tuple(name for name in NAMES if name != "cyd"))
    party.pump()
    choose(party, "", shown=seen)
    assert (party.loads, shown_by(party) == seen) == ([], False)
    choose(party, "", shown=shown_by(party))
    assert states(party) == {State.READY}


def test_choose_when_the_other_objectives_plan_is_as_it_was_shown_then_all_fetch_it() -> None:
    party = asking()
    choose(party, "throughput", shown=shown_by(party))  # this party divides by the order of names alone
    assert (states(party), party.proposals[-1].problem.objective.value) == ({State.READY}, "throughput")


def test_choose_when_the_other_objectives_plan_turns_out_otherwise_then_it_is_asked_about_anew() -> None:
    party = asking()
    choose(party, "throughput", shown=OTHERWISE)
    assert (states(party), party.loads) == ({State.LINKING}, [])
    assert party.proposals[-1].problem.objective.value == "throughput"
    choose(party, "", shown=shown_by(party))
    assert states(party) == {State.READY}
