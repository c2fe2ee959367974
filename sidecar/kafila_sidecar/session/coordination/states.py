"""The states of a session as every member goes through them, how it ends for one, the phases of the host's decisions,
and which may follow which."""

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


class Ending(StrEnum):
    """How a session ended on this machine."""

    LEFT = "left"  # this person left
    REMOVED = "removed"  # the others put this machine out, for good
    LOST = "lost"  # the others went on without this machine, or it can't reach enough of them
    OVER = "over"  # it was dissolved or can't go on, for everybody


class Step(StrEnum):
    """What moves a session on."""

    COMPLETE = "complete"  # everybody who is waited for has come and measured
    PROPOSED = "proposed"  # the host's plan arrived and was checked
    LINKED = "linked"  # every edge of the plan stands: weights may be fetched
    LOADED = "loaded"  # every stage holds its shard
    LOST = "lost"  # a member is gone
    SHORT = "short"  # the model does not fit in what those present offer
    CLOSE = "close"


_NEXT: dict[tuple[State, Step], State] = {
    (State.FORMING, Step.COMPLETE): State.PLANNING,
    (State.FORMING, Step.PROPOSED): State.LINKING,
    (State.FORMING, Step.LOST): State.FORMING,
    (State.FORMING, Step.SHORT): State.FORMING,
    (State.PLANNING, Step.SHORT): State.FORMING,
    (State.LINKING, Step.SHORT): State.REPLANNING,
    (State.FETCHING, Step.SHORT): State.REPLANNING,
    (State.READY, Step.SHORT): State.REPLANNING,
    (State.REPLANNING, Step.SHORT): State.REPLANNING,
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


class Phase(StrEnum):
    """What the host waits for before it decides again."""

    FORMING = "forming"  # members
    MEASURING = "measuring"  # their measurements
    PLANNING = "planning"  # the planner
    LINKING = "linking"  # the plan's links
    CHOOSING = "choosing"  # a person who looks at the plan before anything is fetched
    FETCHING = "fetching"  # the stages' weights
    READY = "ready"  # nothing
    CLOSED = "closed"


class Decision(StrEnum):
    """What the host decides."""

    WAIT = "wait"  # fewer members than wanted are here, or the model needs another one
    MEASURE = "measure"  # everybody came
    PLAN = "plan"  # for the first time, with measured links, or without somebody
    PROPOSE = "propose"
    ASK = "ask"  # the links of the first plan stand, and somebody wants to see it first
    FETCH = "fetch"
    SERVE = "serve"
    DISSOLVE = "dissolve"


_NEXT_PHASE: dict[tuple[Phase, Decision], Phase] = {
    (Phase.FORMING, Decision.WAIT): Phase.FORMING,
    (Phase.FORMING, Decision.MEASURE): Phase.MEASURING,
    (Phase.FORMING, Decision.DISSOLVE): Phase.CLOSED,
    (Phase.MEASURING, Decision.WAIT): Phase.FORMING,
    (Phase.MEASURING, Decision.PLAN): Phase.PLANNING,
    (Phase.MEASURING, Decision.DISSOLVE): Phase.CLOSED,
    (Phase.PLANNING, Decision.PLAN): Phase.PLANNING,
    (Phase.PLANNING, Decision.PROPOSE): Phase.LINKING,
    (Phase.PLANNING, Decision.WAIT): Phase.FORMING,
    (Phase.PLANNING, Decision.DISSOLVE): Phase.CLOSED,
    (Phase.LINKING, Decision.PLAN): Phase.PLANNING,
    (Phase.LINKING, Decision.ASK): Phase.CHOOSING,
    (Phase.LINKING, Decision.FETCH): Phase.FETCHING,
    (Phase.LINKING, Decision.DISSOLVE): Phase.CLOSED,
    (Phase.CHOOSING, Decision.PLAN): Phase.PLANNING,
    (Phase.CHOOSING, Decision.PROPOSE): Phase.LINKING,
    (Phase.CHOOSING, Decision.DISSOLVE): Phase.CLOSED,
    (Phase.FETCHING, Decision.PLAN): Phase.PLANNING,
    (Phase.FETCHING, Decision.SERVE): Phase.READY,
    (Phase.FETCHING, Decision.DISSOLVE): Phase.CLOSED,
    (Phase.READY, Decision.PLAN): Phase.PLANNING,
    (Phase.READY, Decision.DISSOLVE): Phase.CLOSED,
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


def decide(phase: Phase, decision: Decision) -> Phase:
    """The phase after a decision of the host's.

    Raises:
        RuntimeError: the pair is not in the table, which is a bug and never a user's mistake.
    """
    try:
        return _NEXT_PHASE[phase, decision]
    except KeyError:
        raise RuntimeError(f"a host whose session is {phase} can't decide to {decision}") from None
