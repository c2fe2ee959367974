"""What `make chaos` holds to be the cause of a pause."""

import pytest

from bench.chaos_report import REPLAY_S, Blow, causes_of
from tests.support.trouble import Pause


def struck(what: str, began: float, ended: float, ready_s: float | None) -> Blow:
    return Blow(what, "ada", began, ended, ready_s, ())


SLEPT, CUT = struck("slept", 100.0, 140.0, 8.0), struck("cut", 151.0, 171.0, None)
KILLED = struck("killed", 173.0, 173.0, 5.0)
BLOWS = (SLEPT, CUT, KILLED)
OVER = 173.0 + 5.0 + REPLAY_S


@pytest.mark.parametrize(
    ("pause", "causes"),
    [
        pytest.param(Pause(90.0, 99.9), [], id="before any"),
        pytest.param(Pause(100.1, 149.0), ["slept"], id="it lasts until all are ready"),
        pytest.param(Pause(149.0, 150.9), ["slept"], id="and what was asked is read again"),
        pytest.param(Pause(151.2, 152.0), ["cut"], id="what came before is over"),
        pytest.param(Pause(172.0, 172.5), ["cut"], id="nobody looked whether it was over"),
        pytest.param(Pause(100.1, 174.0), ["slept", "cut", "killed"], id="from one into the next"),
        pytest.param(Pause(OVER - 0.1, 300.0), ["cut", "killed"], id="whose end is the next one's"),
        pytest.param(Pause(OVER + 0.1, 300.0), [], id="after all"),
    ],
)
def test_pause_when_blows_came_one_by_one_then_each_that_it_met_is_a_cause(pause: Pause, causes: list[str]) -> None:
    assert [blow.what for blow in causes_of(pause, BLOWS)] == causes


def test_pause_when_the_last_blow_was_not_waited_for_then_it_is_over_by_itself() -> None:
    assert causes_of(Pause(171.0 + REPLAY_S + 0.1, 180.0), BLOWS[:2]) == []
    assert causes_of(Pause(171.0 + REPLAY_S - 0.1, 180.0), BLOWS[:2]) == [CUT]
