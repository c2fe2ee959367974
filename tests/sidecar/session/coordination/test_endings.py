"""How a session ends on one machine: each way has its word, which says whether the machine may come back."""

from collections.abc import Callable, Sequence

import pytest

from kafila_sidecar.session.coordination.effects import Fault, FollowerOutput, StopServing
from kafila_sidecar.session.coordination.follower import REPLAN_DEADLINE_S, Follower
from kafila_sidecar.session.coordination.liveness import TAKEOVER_DEADLINE_S
from kafila_sidecar.session.coordination.states import Ending, State
from tests.sidecar.session.party import formed

Closes = Callable[[Follower], Sequence[FollowerOutput]]


def _host_lost(cyd: Follower) -> Sequence[FollowerOutput]:
    cyd.left("ada", 0.0)
    return cyd.handle_timer(TAKEOVER_DEADLINE_S, {})


def _never_planned(cyd: Follower) -> Sequence[FollowerOutput]:
    cyd.left("bob", 0.0)
    return cyd.handle_timer(REPLAN_DEADLINE_S, {})


@pytest.mark.parametrize(
    ("closes", "ending"),
    [
        (lambda cyd: cyd.close(None, Ending.LEFT), Ending.LEFT),
        (lambda cyd: cyd.removed("left"), Ending.LEFT),
        (lambda cyd: cyd.removed("removed"), Ending.REMOVED),
        (lambda cyd: cyd.removed("lost"), Ending.LOST),
        (lambda cyd: cyd.members_changed(("ada", "bob"), "ada", 0.0), Ending.LOST),
        (_host_lost, Ending.LOST),
        (_never_planned, Ending.LOST),
        (lambda cyd: cyd.close(Fault("bob", "FAILED_PRECONDITION", "too large")), Ending.OVER),
        (lambda cyd: cyd.failed_here("RESOURCE_EXHAUSTED", "the disk of cyd is full"), Ending.OVER),
    ],
)
def test_member_when_the_session_ends_for_it_then_it_knows_how_and_a_second_end_changes_nothing(
    closes: Closes, ending: Ending
) -> None:
    cyd = formed().machines["cyd"]
    assert closes(cyd)
    assert (cyd.state, cyd.ending) == (State.CLOSED, ending)
    assert not cyd.removed("removed")
    assert cyd.ending is ending


def test_member_when_the_session_goes_on_then_it_has_no_ending() -> None:
    assert {follower.ending for follower in formed().machines.values()} == {None}


@pytest.mark.parametrize("state", [State.LINKING, State.FETCHING, State.READY, State.REPLANNING])
def test_member_when_the_model_does_not_fit_any_more_then_it_waits_without_a_deadline(state: State) -> None:
    cyd = Follower(name="cyd", host="ada", members=("ada", "bob", "cyd"))
    cyd.state = state
    stopped = cyd.awaits_memory("208 MB short; lost and not back yet: bob")
    assert [type(output) for output in stopped] == ([] if state is State.REPLANNING else [StopServing])
    assert (cyd.state, cyd.ending) == (State.REPLANNING, None)
    assert cyd.shortage == "208 MB short; lost and not back yet: bob"
    assert cyd.next_timer(0.0, {}) is None
