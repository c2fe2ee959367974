"""The rules of death: who counts as lost, after how long, and when that has to be looked at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.session.coordination.liveness import (
    ASK_AFTER_S,
    GONE_WITHOUT_LINK_S,
    HEARING_S,
    KNOCK_COUNTS_S,
    LINK_SILENT_AND_GONE_S,
    LINK_SILENT_S,
    ONE_OUTAGE_S,
    TAKEOVER_DEADLINE_S,
    Died,
    Hearings,
    Liveness,
    NoSuccessor,
    Suspected,
)

NAMES = ("ada", "bob", "cyd", "dan")


def judged_by_cyd(rendezvous_at: str = "") -> Liveness:
    return Liveness(me="cyd", host="ada", members=NAMES, rendezvous_at=rendezvous_at)


@pytest.mark.parametrize(
    ("departed", "linked", "dies_after_s"),
    [
        (False, False, None),
        (False, True, LINK_SILENT_S),
        (True, True, LINK_SILENT_AND_GONE_S),
        (True, False, GONE_WITHOUT_LINK_S),
    ],
)
def test_member_when_nothing_comes_from_it_then_it_is_dead_by_the_rule_and_not_before(
    departed: bool, linked: bool, dies_after_s: float | None
) -> None:
    liveness, now, silent_s = judged_by_cyd(), 100.0, {"bob": 0.0} if linked else {}
    if departed:
        liveness.receive_departure("bob", now)
    deaths = []
    for _ in range(5):
        timer = liveness.next_timer(now, silent_s)
        if timer is None:
            break
        silent_s = {peer: silence_s + timer - now for peer, silence_s in silent_s.items()}
        now = timer
        deaths += [(verdict, now) for verdict in liveness.handle_timer(now, silent_s) if verdict == Died("bob")]
    assert deaths == ([] if dies_after_s is None else [(Died("bob"), 100.0 + dies_after_s)])
    assert liveness.is_gone("bob") is (dies_after_s is not None)


def test_member_when_missed_without_a_link_then_asked_for_and_lives_for_as_long_as_it_answers() -> None:
    liveness = judged_by_cyd()
    liveness.receive_departure("bob", 0.0)
    assert liveness.next_timer(0.0, {}) == ASK_AFTER_S
    assert liveness.handle_timer(ASK_AFTER_S, {}) == [Suspected("bob")]
    assert liveness.next_timer(ASK_AFTER_S, {}) == GONE_WITHOUT_LINK_S
    for heard_at in (1.0, 1.0 + LINK_SILENT_S + 1.0):
        liveness.receive_message("bob", heard_at)
        asked_at = heard_at + LINK_SILENT_S + ASK_AFTER_S
        assert liveness.next_timer(heard_at, {}) == asked_at
        assert liveness.handle_timer(asked_at - 0.1, {}) == []
        assert liveness.handle_timer(asked_at, {}) == [Suspected("bob")]
    assert liveness.handle_timer(heard_at + LINK_SILENT_S + GONE_WITHOUT_LINK_S, {}) == [Died("bob")]


def test_member_when_the_link_goes_over_which_it_was_heard_since_the_rendezvous_missed_it_then_it_dies_too() -> None:
    liveness = judged_by_cyd()
    liveness.receive_departure("bob", 0.0)
    liveness.receive_message("bob", 40.0)
    assert liveness.handle_timer(40.0, {"bob": 0.0}) == []
    assert liveness.next_timer(41.0, {}) is not None
    assert Died("bob") in liveness.handle_timer(40.0 + LINK_SILENT_S + GONE_WITHOUT_LINK_S, {})


def test_host_when_it_is_gone_then_the_first_in_order_is_the_heir_until_nobody_took_over_in_time() -> None:
    liveness = judged_by_cyd()
    assert liveness.heir is None
    assert liveness.receive_goodbye("ada", 5.0)
    assert liveness.heir == "bob"
    assert liveness.receive_goodbye("bob", 6.0)
    assert liveness.heir == "cyd"
    assert liveness.next_timer(6.0, {}) == 5.0 + TAKEOVER_DEADLINE_S
    assert liveness.handle_timer(5.0 + TAKEOVER_DEADLINE_S, {}) == [NoSuccessor()]


@pytest.mark.parametrize(
    ("members", "knock", "heard", "waits"),
    [
        (("ada", "cyd"), ("ada",), "", False),  # of two the other one can't succeed the host
        (("ada", "bob", "cyd"), ("ada",), "", True),  # bob and cyd can vote
        (("ada", "bob", "cyd"), ("bob",), "", False),
        (("ada", "bob", "cyd"), ("bob",), "bob", True),  # it is in the session again
        (("ada", "bob", "cyd", "dan"), ("bob",), "", True),
        (("ada", "bob", "cyd", "dan"), ("bob", "ada"), "", True),
        (("ada", "bob", "cyd", "dan"), ("bob", "dan"), "", False),
        (("ada", "bob", "cyd", "dan", "eve"), ("bob", "dan"), "", False),
    ],
)
@pytest.mark.parametrize("is_missed", [True, False])
def test_host_when_it_is_missed_and_too_few_are_left_to_vote_by_what_knocks_then_nobody_waits_for_a_successor(
    members: tuple[str, ...], knock: tuple[str, ...], heard: str, waits: bool, is_missed: bool
) -> None:
    liveness = Liveness(me="cyd", host="ada", members=members)
    liveness.receive_departure("ada", 1.0)
    if is_missed:
        assert liveness.handle_timer(1.0 + GONE_WITHOUT_LINK_S, {}) == [Died("ada")]
    for name in knock:
        liveness.receive_knock(name, 3.5)
    liveness.receive_message(heard, 3.7)
    gives_up = any(isinstance(one, NoSuccessor) for one in liveness.handle_timer(4.0, {}))
    assert gives_up is (is_missed and not waits)
    if gives_up:
        assert liveness.next_timer(4.0, {}) == 4.0


@pytest.mark.parametrize(
    ("knocked_at", "silent_s", "resigns", "waits"),
    [
        (3.9, {}, False, False),
        (4.0 - KNOCK_COUNTS_S, {}, False, True),  # a knock that is repeated by who carries it counts no longer
        (3.9, {"bob": 0.1}, False, True),  # it is heard in the session
        (3.9, {"bob": LINK_SILENT_AND_GONE_S}, False, False),
        (3.9, {}, True, True),  # its heir takes over by the resignation: nobody has to vote
    ],
)
def test_knock_when_it_is_old_or_others_say_otherwise_then_the_wait_for_a_successor_goes_on(
    knocked_at: float, silent_s: dict[str, float], resigns: bool, waits: bool
) -> None:
    liveness = Liveness(me="cyd", host="ada", members=("ada", "bob", "cyd"))
    assert liveness.receive_goodbye("ada", 1.0, resigns=resigns)
    liveness.receive_knock("bob", knocked_at)
    assert liveness.handle_timer(4.0, silent_s) == ([] if waits else [NoSuccessor()])


def test_host_when_it_is_succeeded_by_somebody_dead_then_the_wait_begins_anew() -> None:
    liveness = judged_by_cyd()
    liveness.receive_goodbye("ada", 0.0)
    liveness.receive_goodbye("bob", 1.0)
    liveness.receive_members(NAMES[1:], "bob", 20.0)
    assert liveness.heir == "cyd"
    assert liveness.next_timer(20.0, {}) == 20.0 + TAKEOVER_DEADLINE_S


@pytest.mark.parametrize("at", ["", "ada"])
def test_rendezvous_when_lost_then_whoever_embeds_it_is_missed(at: str) -> None:
    liveness = judged_by_cyd(rendezvous_at=at)
    liveness.receive_rendezvous_lost(0.0)
    assert (liveness.next_timer(0.0, {}) is not None) is bool(at)
    liveness.receive_rendezvous_back()
    assert liveness.next_timer(0.0, {}) is None


@pytest.mark.parametrize(
    ("silent_s", "heard", "is_gone"), [({}, False, True), ({}, True, False), ({"ada": 0.4}, False, False)]
)
def test_host_when_others_miss_it_then_it_is_asked_for_and_judged_by_what_comes(
    silent_s: dict[str, float], heard: bool, is_gone: bool
) -> None:
    liveness = judged_by_cyd()
    liveness.receive_doubt(10.0)
    if not silent_s:
        assert liveness.handle_timer(10.0 + ASK_AFTER_S, {}) == [Suspected("ada")]
    if heard:
        liveness.receive_message("ada", 11.0)
    liveness.handle_timer(10.0 + GONE_WITHOUT_LINK_S, silent_s)
    assert liveness.is_gone("ada") is is_gone
    if not is_gone:
        assert liveness.next_timer(13.0, {}) is None  # the doubt is over


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["departs", "returns", "says", "leaves"]), st.sampled_from(NAMES)),
            st.tuples(st.just("waits"), st.floats(0.0, 40.0)),
        ),
        max_size=30,
    ),
    st.sets(st.sampled_from(["ada", "bob", "dan"])),
)
def test_timers_when_whatever_happens_then_nothing_is_due_before_one_and_none_stays_due(
    happenings: list[tuple[str, object]], linked: set[str]
) -> None:
    liveness, now = judged_by_cyd(), 0.0
    heard_at = dict.fromkeys(linked, 0.0)

    def silent_s() -> dict[str, float]:
        return {peer: now - at for peer, at in heard_at.items()}

    for what, of in happenings:
        if isinstance(of, float):
            timer, until = liveness.next_timer(now, silent_s()), now + of
            if timer is not None and timer <= until:
                now = timer
                liveness.handle_timer(now, silent_s())
                later = liveness.next_timer(now, silent_s())
                assert later is None or later > now or liveness.handle_timer(now, silent_s()) == [NoSuccessor()]
            else:
                now = until
                assert timer is not None or liveness.handle_timer(now, silent_s()) == []
        elif what == "departs":
            liveness.receive_departure(str(of), now)
        elif what == "returns":
            liveness.receive_return(str(of))
        elif what == "says":
            liveness.receive_message(str(of), now)
            heard_at.update({str(of): now} if of in heard_at else {})
        elif of != "cyd":
            liveness.receive_goodbye(str(of), now)


def test_hearing_when_it_is_over_then_the_silent_one_died_and_the_timer_is_gone() -> None:
    hearings = Hearings("ada")
    hearings.receive_members(NAMES)
    hearings.receive_accusation("bob", "cyd", 10.0)
    hearings.receive_accusation("bob", "dan", 11.0)
    assert hearings.next_timer() == 10.0 + HEARING_S
    assert hearings.handle_timer(10.0 + HEARING_S - 0.1) == []
    assert hearings.handle_timer(10.0 + HEARING_S) == [Died("bob")]
    assert hearings.next_timer() is None
    assert hearings.receive_message("bob", 13.0) is None


def test_hearing_when_one_outage_hides_several_then_it_is_one_false_alarm_and_the_same_one_again_is_another() -> None:
    hearings = Hearings("ada")
    hearings.receive_members(NAMES)
    alarms = []
    for accused, at in (("cyd", 10.0), ("dan", 10.0), ("cyd", 11.0), ("dan", 11.0 + ONE_OUTAGE_S)):
        hearings.receive_accusation(accused, "bob", at)
        alarms.append(hearings.receive_message(accused, at))
    told = [(alarm.counts, alarm.is_one_too_many) for alarm in alarms if alarm]
    assert told == [(True, False), (False, False), (True, False), (True, True)]


def test_member_when_the_room_moved_then_who_keeps_the_new_one_is_missed_with_it() -> None:
    liveness = Liveness(me="ada", host="ada", members=NAMES, rendezvous_at="bob")
    liveness.receive_move("cyd")
    liveness.receive_rendezvous_lost(10.0)
    assert liveness.handle_timer(10.0 + ASK_AFTER_S, {}) == [Suspected("cyd")]
    liveness.receive_rendezvous_back()
    assert liveness.next_timer(11.0, {}) is None
