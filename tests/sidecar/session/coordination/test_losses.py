"""Who is gone, who says so, and who decides then: the cores of all members, joined by a pump."""

import pytest

from kafila_sidecar.session.coordination.effects import Accuse, Ask, Remove, StopServing, Vote
from kafila_sidecar.session.coordination.follower import Follower
from kafila_sidecar.session.coordination.liveness import (
    ASK_AFTER_S,
    GONE_WITHOUT_LINK_S,
    HEARING_S,
    LINK_SILENT_S,
    MOST_FALSE_ALARMS,
    TAKEOVER_DEADLINE_S,
)
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.hosting.waits import MEASURE_DEADLINE_S
from tests.sidecar.session.party import CoreParty, formed


def test_session_when_the_host_dies_then_the_next_in_order_succeeds_and_the_rest_serve_on() -> None:
    party = formed()
    before = party.serving["bob"]
    party.kill("ada")
    party.advance(3.0)
    assert party.coordinator.name == "bob"
    assert {name: follower.host for name, follower in party.machines.items()} == {"bob": "bob", "cyd": "bob"}
    assert "ada" in party.stopped["cyd"].sentence
    assert party.closed == {}
    assert party.serving["bob"] == party.serving["cyd"] > before
    assert party.proposals[-1].plan.order == ("bob", "cyd")


def test_session_when_the_host_leaves_then_the_next_in_order_succeeds() -> None:
    party = formed()
    party.leave("ada")
    assert party.coordinator.name == "bob"
    assert party.serving["bob"] == party.serving["cyd"] > 1
    assert party.closed == {}


def test_session_when_the_host_dies_while_forming_then_the_successor_waits_on_for_members() -> None:
    party = CoreParty(wanted=3)
    party.measure("ada")
    party.join("bob")
    party.measure("bob")
    party.kill("ada")
    party.advance(3.0)
    assert party.machines["bob"].state is State.FORMING
    party.advance(TAKEOVER_DEADLINE_S + MEASURE_DEADLINE_S)
    for name in ("cyd", "dan"):
        party.join(name)
        party.measure(name)
    assert set(party.serving) == {"bob", "cyd", "dan"}


def test_session_when_host_and_successor_die_together_then_too_few_are_left_and_it_closes_in_words() -> None:
    party = formed()
    party.kill("ada")
    party.kill("bob")
    party.advance(3.0)
    assert party.closed == {}
    party.advance(TAKEOVER_DEADLINE_S)
    fault = party.closed["cyd"]
    assert fault is not None
    assert fault.member == "ada"
    assert "too few members" in fault.sentence


def test_session_when_the_successor_dies_too_then_the_one_after_it_takes_over_and_removes_it() -> None:
    party = CoreParty(wanted=4)
    party.measure("ada")
    for name in ("bob", "cyd", "dan"):
        party.join(name)
        party.measure(name)
    assert set(party.serving) == {"ada", "bob", "cyd", "dan"}
    party.kill("ada")
    party.kill("bob")
    party.advance(3.0)
    assert party.coordinator.name == "cyd"
    party.advance(LINK_SILENT_S)
    assert ("bob", "lost") in party.removed
    assert party.serving["cyd"] == party.serving["dan"]
    assert party.proposals[-1].plan.order == ("cyd", "dan")


def test_follower_when_the_host_is_heard_again_then_it_waits_for_its_plan_and_does_not_close() -> None:
    party = formed()
    follower = party.machines["cyd"]
    follower.liveness.receive_departure("ada", party.now)
    outputs = follower.handle_timer(party.now + 3, {"ada": 3.0, "bob": 0.1})
    assert [type(output) for output in outputs] == [StopServing, Vote]
    follower.liveness.receive_message("ada", party.now)
    follower.liveness.receive_return("ada")
    assert follower.handle_timer(party.now + TAKEOVER_DEADLINE_S + 1, {"ada": 0.1, "bob": 0.1}) == []
    party.obey(party.coordinator.doubted("cyd", party.now))
    party.pump()
    assert party.serving["cyd"] == party.serving["ada"]


def test_follower_when_an_earlier_one_is_heard_again_while_the_host_is_gone_then_it_votes_for_that_one() -> None:
    dan = Follower(name="dan", host="ada", members=("ada", "bob", "cyd", "dan"))
    silent_s = dict.fromkeys(("ada", "bob", "cyd"), LINK_SILENT_S)  # dan was cut off from all
    assert Vote("dan") in dan.handle_timer(20.0, silent_s)
    dan.heard("bob", 25.0)
    assert dan.handle_timer(25.0, {}) == [Vote("bob")]
    assert dan.handle_timer(26.0, {}) == []
    dan.heard("cyd", 27.0)
    assert dan.handle_timer(27.0, {}) == []  # the first in order is bob still


def test_follower_when_the_host_said_goodbye_then_its_late_messages_change_nothing() -> None:
    follower = formed().machines["cyd"]
    assert Vote("bob") in follower.left("ada", 0.0)
    follower.liveness.receive_message("ada", 0.1)
    assert follower.liveness.is_gone("ada")


def test_member_when_accused_and_heard_then_it_stays_and_all_begin_anew() -> None:
    party = formed()
    before = party.serving["ada"]
    party.accuse("bob", "cyd")
    assert party.removed == []
    assert party.serving["cyd"] == party.serving["ada"] > before
    party.advance(HEARING_S)
    assert party.removed == []


def test_member_when_accused_and_not_heard_then_it_is_removed() -> None:
    party = formed()
    party.mute.add("cyd")
    party.accuse("bob", "cyd")
    party.advance(HEARING_S / 2)
    assert party.removed == []
    party.advance(HEARING_S / 2)
    assert party.removed == [("cyd", "lost")]


def test_accuser_when_it_lies_again_and_again_then_it_is_removed_and_nobody_else() -> None:
    party = formed()
    for _ in range(MOST_FALSE_ALARMS):
        party.accuse("cyd", "bob")
    assert party.removed == [("cyd", "removed")]
    assert "cyd" in party.closed
    assert party.proposals[-1].plan.order == ("ada", "bob")


def test_host_when_doubted_again_and_again_by_one_member_then_that_one_is_removed() -> None:
    party = formed()
    for _ in range(MOST_FALSE_ALARMS):
        party.obey(party.coordinator.doubted("cyd", party.now))
        party.pump()
    assert party.removed == [("cyd", "removed")]
    assert party.coordinator.name == "ada"


@pytest.mark.parametrize(("accused", "accuser"), [("ada", "bob"), ("zoe", "bob"), ("bob", "zoe"), ("bob", "bob")])
def test_accusation_when_it_makes_no_sense_then_nothing_is_kept(accused: str, accuser: str) -> None:
    party = formed()
    party.accuse(accuser, accused)
    party.advance(HEARING_S)
    assert party.removed == []
    assert party.coordinator.next_timer() is None


def test_member_when_it_stands_by_and_is_kicked_then_the_epoch_changes_all_the_same() -> None:
    party = CoreParty(wanted=2)
    party.measure("ada")
    party.join("bob")
    party.measure("bob")
    party.join("cyd")
    party.measure("cyd")
    before = party.serving["ada"]
    assert "cyd" not in party.loads
    party.obey([Remove("cyd", "removed")])
    assert party.serving["ada"] == party.serving["bob"] > before
    assert "cyd" in party.closed


def test_member_when_it_fails_then_it_goes_and_the_others_serve_on() -> None:
    party = formed()
    party.do("bob", party.machines["bob"].failed_here("RESOURCE_EXHAUSTED", "bob's disk is full"))
    party.pump()
    fault = party.closed["bob"]
    assert fault is not None
    assert fault.sentence == "bob's disk is full"
    assert {party.stopped[name].sentence for name in ("ada", "cyd")} == {"bob's disk is full"}
    party.leave("bob")
    assert party.serving["ada"] == party.serving["cyd"]


def test_follower_when_only_the_rendezvous_lost_somebody_then_it_is_no_death() -> None:
    party = formed()
    follower = party.machines["ada"]
    follower.liveness.receive_departure("bob", party.now)
    assert follower.handle_timer(party.now + 60, {"bob": 0.1, "cyd": 0.1}) == []


def test_follower_when_the_rendezvous_misses_who_has_no_link_then_it_asks_and_the_answer_counts() -> None:
    follower = Follower(name="dan", host="ada", members=("ada", "bob", "cyd", "dan"))
    for member in ("ada", "bob", "cyd"):
        follower.liveness.receive_departure(member, 10.0)
        follower.liveness.receive_message(member, 10.1)  # was on its way
    assert follower.handle_timer(10.0 + ASK_AFTER_S - 0.1, {}) == []
    assert follower.handle_timer(10.0 + ASK_AFTER_S, {"bob": 0.1}) == [Ask("ada"), Ask("cyd")]
    assert follower.handle_timer(10.0 + ASK_AFTER_S + 0.1, {"bob": 0.1}) == []
    follower.liveness.receive_message("ada", 10.0 + ASK_AFTER_S + 0.2)
    outputs = follower.handle_timer(10.0 + GONE_WITHOUT_LINK_S, {"bob": 0.1})
    assert [output.fault.member for output in outputs if isinstance(output, Accuse)] == ["cyd"]
    assert not follower.liveness.is_gone("ada")
    assert follower.handle_timer(10.0 + LINK_SILENT_S, {"bob": 0.1}) == []
