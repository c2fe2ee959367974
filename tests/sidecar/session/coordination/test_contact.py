"""A member that hears nothing of its host by any way finds out by itself."""

import pytest

from kafila_sidecar.session.coordination.effects import Ask, Closed
from kafila_sidecar.session.coordination.follower import Follower
from kafila_sidecar.session.coordination.liveness import LINK_SILENT_S
from kafila_sidecar.session.coordination.states import Ending, State
from kafila_sidecar.session.judging.contact import ASK_AFTER_S, CUT_OFF_S, UNLINKED_ASK_AFTER_S, UNLINKED_CUT_OFF_S
from tests.sidecar.session.party import formed

NAMES = ("ada", "bob", "cyd")


def member(name: str = "cyd") -> Follower:
    follower = Follower(name=name, host="ada", members=NAMES)
    follower.rendezvous_lost(0.0)
    return follower


def test_member_when_it_hears_nothing_of_the_host_then_it_asks_and_leaves_to_come_back() -> None:
    cyd = member()
    assert cyd.next_timer(0.0, {}) == ASK_AFTER_S
    assert cyd.handle_timer(ASK_AFTER_S, {}) == [Ask("ada")]
    assert cyd.next_timer(ASK_AFTER_S, {}) == CUT_OFF_S
    assert Closed in map(type, cyd.handle_timer(CUT_OFF_S, {}))
    assert cyd.ending is Ending.LOST
    assert cyd.fault is not None
    assert "heard nothing of ada, the host, for 60 s" in cyd.fault.sentence


@pytest.mark.parametrize("what", ["the host answers", "its link stands", "the rendezvous is back"])
def test_member_when_there_is_any_sign_of_the_host_then_it_stays(what: str) -> None:
    cyd, silent_s = member(), {"ada": 0.5} if what == "its link stands" else {}
    cyd.handle_timer(ASK_AFTER_S, silent_s)
    if what == "the host answers":
        cyd.heard("ada", ASK_AFTER_S + 1.0)
    elif what == "the rendezvous is back":
        cyd.rendezvous_back()
    cyd.heard("bob", CUT_OFF_S)
    cyd.handle_timer(CUT_OFF_S, silent_s)
    assert cyd.state is State.FORMING


def test_host_when_the_rendezvous_is_away_then_it_misses_nobody_for_that() -> None:
    assert member("ada").next_timer(0.0, {}) is None


def test_member_when_it_is_the_host_since_the_rendezvous_is_away_then_it_does_not_miss_itself() -> None:
    bob = member("bob")
    bob.members_changed(("bob", "cyd"), "bob", 1.0)
    bob.members_changed(("bob", "cyd", "dan"), "bob", 2.0)
    assert Ask("bob") not in bob.handle_timer(ASK_AFTER_S + 1.0, {})
    bob.handle_timer(CUT_OFF_S + 1.0, {})
    assert bob.ending is not Ending.LOST
    bob.members_changed(("cyd", "bob"), "cyd", CUT_OFF_S + 2.0)
    assert Ask("cyd") in bob.handle_timer(CUT_OFF_S + 2.0 + ASK_AFTER_S, {})


def test_member_when_it_is_ready_and_no_link_to_anybody_stands_then_it_waits_only_for_one_to_be_made() -> None:
    party = formed()
    cyd = party.machines["cyd"]
    assert cyd.state is State.READY
    cyd.rendezvous_lost(party.now)
    cyd.handle_timer(party.now, {"bob": 0.5})
    gone_at = party.now + 10.0  # whoever was linked is not any more
    cyd.handle_timer(gone_at, {})
    assert Ask("ada") not in cyd.handle_timer(gone_at + UNLINKED_ASK_AFTER_S - 0.1, {})
    assert Ask("ada") in cyd.handle_timer(gone_at + UNLINKED_ASK_AFTER_S, {})
    assert Closed in map(type, cyd.handle_timer(gone_at + UNLINKED_CUT_OFF_S, {}))
    assert cyd.ending is Ending.LOST
    assert cyd.fault is not None
    assert "heard nothing of ada, the host, for 25 s" in cyd.fault.sentence


def test_member_when_a_link_to_anybody_comes_up_in_time_then_it_waits_on_for_the_host() -> None:
    party = formed()
    cyd = party.machines["cyd"]
    cyd.rendezvous_lost(party.now)
    cyd.handle_timer(party.now, {})
    cyd.handle_timer(party.now + UNLINKED_ASK_AFTER_S, {})
    cyd.handle_timer(party.now + UNLINKED_CUT_OFF_S - 0.1, {"bob": 0.1})
    assert cyd.handle_timer(party.now + UNLINKED_CUT_OFF_S, {"bob": 0.1}) == []
    assert cyd.ending is None


def test_member_when_it_holds_the_host_to_be_gone_then_it_waits_for_a_successor_as_long_as_with_links() -> None:
    party = formed()
    cyd = party.machines["cyd"]
    cyd.rendezvous_lost(party.now)
    cyd.handle_timer(party.now, {"ada": LINK_SILENT_S, "bob": LINK_SILENT_S})
    cyd.handle_timer(party.now + UNLINKED_ASK_AFTER_S, {})
    cyd.handle_timer(party.now + UNLINKED_CUT_OFF_S, {})
    assert cyd.ending is None
