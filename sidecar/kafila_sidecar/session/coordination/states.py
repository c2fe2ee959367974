"""The states of a session, and which may follow which."""

from enum import StrEnum


class State(StrEnum):
    """What a session is doing; the words people see."""

    FORMING = "forming"
    PLANNING = "planning"
    LINKING = "linking"
    FETCHING = "fetching"
    READY = "ready"
    REPLANNING = "replanning"
    CLOSED = "closed"


class Step(StrEnum):
    """What moves a session on."""

    COMPLETE = "complete"  # everybody who is waited for has come and measured
    PROPOSED = "proposed"  # the host's plan arrived and was checked
    LINKED = "linked"  # every edge of the plan stands: weights may be fetched
    LOADED = "loaded"  # every stage holds its shard
    LOST = "lost"  # a member is gone
    CLOSE = "close"


_NEXT: dict[tuple[State, Step], State] = {
    (State.FORMING, Step.COMPLETE): State.PLANNING,
    (State.FORMING, Step.PROPOSED): State.LINKING,
    (State.FORMING, Step.LOST): State.FORMING,
    (State.PLANNING, Step.PROPOSED): State.LINKING,
    (State.PLANNING, Step.LOST): State.REPLANNING,
    (State.LINKING, Step.PROPOSED): State.LINKING,
    (State.LINKING, Step.LINKED): State.FETCHING,
    (State.LINKING, Step.LOST): State.REPLANNING,
    (State.FETCHING, Step.LOADED): State.READY,
    (State.FETCHING, Step.LOST): State.REPLANNING,
    (State.FETCHING, Step.PROPOSED): State.LINKING,
    (State.READY, Step.PROPOSED): State.LINKING,
    (State.READY, Step.LOST): State.REPLANNING,
    (State.REPLANNING, Step.PROPOSED): State.LINKING,
    (State.REPLANNING, Step.LOST): State.REPLANNING,
}


def follow(state: State, step: Step) -> State:
    """The state after `step`. Every open session may close.

    Raises:
        RuntimeError: the pair is not in the table, which is a bug and never a user's mistake.
    """
    if step is Step.CLOSE and state is not State.CLOSED:
        return State.CLOSED
    try:
        return _NEXT[state, step]
    except KeyError:
        raise RuntimeError(f"a session that is {state} can't take the step {step}") from None
