"""Somebody joins, leaves, or moves to another network, while answers run."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kafila_sidecar.machine.seat import GATHER_S
from kafila_sidecar.session.coordination.rest import PAUSE_S
from kafila_sidecar.session.hosting.adoption import IDLE_AFTER_S
from tests.sim.play import play_schedule
from tests.sim.schedule import NAMES, Asking, Happening, Schedule, What

ANSWERS = 4
GAINS_SOME = 3  # seeds in which the newcomer's machine makes the ring faster by over 10 %, and by over 30 %
GAINS_MUCH = 21
ALL_COMPUTE = 2  # one in which each of three machines has a stage
ALL = ("ada", "bob", "cyd", "new3")
MEASURED_S = 25.0  # the newcomer has, and is linked
GAP_S = 2.0  # without a network
FOUND_S = 5.0  # the network is seen, and all find each other again, at worst over the relay at first
BACK_S = 10.0  # all are back, and nobody is waited for any more
LOOK_S = 1.0  # how exact the timeline is


def schedule(what: What, who: str, *, members: int, tokens: int, seed: int = 1) -> Schedule:
    """Four answers begin at 20 s, and half a second later it happens."""
    askings = [Asking(20.0, NAMES[number % 3], (5, 6 + number), tokens) for number in range(ANSWERS)]
    return Schedule(
        seed=seed,
        members=NAMES[:members],
        happenings=(Happening(20.5, what, (who,)),),
        askings=tuple(askings),
        memory_bytes=(700_000_000,) * len(NAMES),
        calm_at_s=90.0,
    )


def ended_s(told: Sequence[str]) -> list[float]:
    """When the four ended, with all that is right: see the laws."""
    return [float(line.split()[0]) for line in told if re.search(r"answer of \d+ tokens ends", line)][:ANSWERS]


def planned_s(told: Sequence[str], by: str = "ada") -> list[float]:
    """When each plan that served was first seen at a machine."""
    found = [re.match(rf"\s*([\d.]+)\s+{by}\s+(?:linking|fetching|ready) epoch (\d+)", line) for line in told]
    first = {one[2]: float(one[1]) for one in reversed(found) if one}
    return sorted(first.values())


def test_newcomer_when_it_joins_while_four_answers_run_then_they_end_right_and_it_has_a_part_once_idle() -> None:
    told: list[str] = []
    outcome = play_schedule(schedule(What.JOIN, "new", members=3, tokens=80, seed=GAINS_SOME), say=told.append)
    assert outcome.broken == []
    _, again_s, *_ = planned_s(told)  # in rounds, with links measured between them
    idle_s = max(ended_s(told)) + IDLE_AFTER_S
    assert idle_s <= again_s <= idle_s + 2 * LOOK_S


def test_newcomer_when_it_gains_much_then_four_answers_go_on_through_the_change() -> None:
    told: list[str] = []
    outcome = play_schedule(schedule(What.JOIN, "new", members=3, tokens=80, seed=GAINS_MUCH), say=told.append)
    assert outcome.broken == []
    _, again_s, *_ = planned_s(told)  # in rounds, with links measured between them
    assert again_s < MEASURED_S < min(ended_s(told))


@pytest.mark.parametrize(("who", "seed"), [(("ada",), GAINS_SOME), (ALL, 88), (ALL, 100)])
def test_newcomers_when_machines_are_started_again_between_two_that_gain_then_the_second_has_a_part_after_five_minutes(
    who: tuple[str, ...], seed: int
) -> None:
    """The host alone, so that another one takes over; and all, which go on with what their disks know."""
    joins = [Happening(at_s, What.JOIN, ("new",)) for at_s in (20.0, 130.0)]
    again = [Happening(70.0, What.RESTART, (one,), 5.0) for one in who]
    still = schedule(What.JOIN, "new", members=3, tokens=1, seed=seed)
    told: list[str] = []
    happenings = (joins[0], *again, joins[1])
    outcome = play_schedule(replace(still, happenings=happenings, askings=(), calm_at_s=330.0), say=told.append)
    assert outcome.broken == []
    (gained_s, *_), after_s, (again_s, *_) = (
        [at for at in planned_s(told, by="bob") if low < at < high]
        for low, high in ((20.0, 70.0), (70.0, 75.0 + BACK_S), (75.0 + BACK_S, 400.0))
    )
    assert after_s
    assert again_s == pytest.approx(gained_s + PAUSE_S, abs=5.0)


@pytest.mark.parametrize("who", ["cyd", "dan"])
def test_power_cut_when_one_stays_away_then_the_others_wait_for_it_half_a_minute_and_go_on(who: str) -> None:
    others = [name for name in NAMES[:4] if name != who]
    again = [Happening(20.0, What.RESTART, (one,), 5.0) for one in others]
    still = schedule(What.KILL, who, members=4, tokens=1)
    told: list[str] = []
    cut = (Happening(20.0, What.KILL, (who,)), *again)
    outcome = play_schedule(replace(still, happenings=cut, askings=(), calm_at_s=60.0), say=told.append)
    assert outcome.broken == []
    assert planned_s(told)[-1] == pytest.approx(25.0 + GATHER_S, abs=BACK_S)


@pytest.mark.parametrize("how", [What.LEAVE, What.KILL])
def test_newcomers_when_the_host_changes_between_two_that_gain_then_the_second_has_a_part_after_five_minutes(
    how: What,
) -> None:
    """See the law `better_plans_rest`; a host that began anew would take its own at once."""
    joins = [Happening(at_s, What.JOIN, ("new",)) for at_s in (20.0, 110.0)]
    happenings = (joins[0], Happening(70.0, how, ("ada",)), joins[1])
    still = schedule(What.JOIN, "new", members=3, tokens=1, seed=GAINS_SOME)
    told: list[str] = []
    outcome = play_schedule(replace(still, happenings=happenings, askings=(), calm_at_s=330.0), say=told.append)
    assert outcome.broken == []
    _, gained_s, after_ada_s, again_s = planned_s(told, by="bob")
    assert 20.0 < gained_s < 70.0 < after_ada_s < 110.0
    assert again_s == pytest.approx(gained_s + PAUSE_S, abs=5.0)


@pytest.mark.parametrize("who", ["ada", "bob", "cyd", "dan"])
def test_member_when_it_leaves_while_four_answers_run_then_they_end_right_and_it_goes_once_it_is_not_needed(
    who: str,
) -> None:
    told: list[str] = []
    outcome = play_schedule(schedule(What.LEAVE, who, members=4, tokens=20), say=told.append)
    assert outcome.broken == []
    assert len(ended_s(told)) == ANSWERS
    (gone,) = [place for place, line in enumerate(told) if f" {who} " in line and "its session is over: left" in line]
    assert any(" ready epoch" in line for line in told[:gone] if f" {who} " in line)


@pytest.mark.parametrize("who", [("ada",), ("bob",), ("bob", "cyd")])
def test_members_when_they_move_to_other_networks_while_answers_run_then_these_pause_and_nobody_goes(
    who: tuple[str, ...],
) -> None:
    """Two that move at once don't know where the other one is, and are told by the rendezvous."""
    told: list[str] = []
    still = schedule(What.MOVE, "ada", members=3, tokens=80, seed=ALL_COMPUTE)
    moves = tuple(Happening(20.5, What.MOVE, (one,), GAP_S) for one in who)
    outcome = play_schedule(replace(still, happenings=moves, askings=still.askings[:2]), say=told.append)
    assert outcome.broken == []
    assert all(GAP_S < pause_s < GAP_S + FOUND_S for pause_s in outcome.pauses_s[:2])
    assert not [line for line in told if "members" in line and "members ada,bob,cyd" not in line]
