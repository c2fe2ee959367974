"""What a session is doing, in one sentence for people."""

from collections.abc import Mapping, Sequence

from sidecar.session.states import State


def doing(
    state: State, *, wanted: int, present: Sequence[str], waiting: Sequence[str], progress: Mapping[str, str]
) -> str:
    """`waiting`: who has to act; `progress`: what each member said last that it does."""
    match state:
        case State.FORMING if wanted and len(present) < wanted:
            missing = wanted - len(present)
            return f"waiting for {missing} more member{'s' if missing > 1 else ''}: pass the code on"
        case State.FORMING if not wanted:
            return "waiting for members: pass the code on, then say `ollama session start`"
        case State.FORMING | State.PLANNING | State.REPLANNING:
            return f"measuring: {_names(waiting)}" if waiting else "planning"
        case State.LINKING:
            return f"linking: {_names(waiting)}" if waiting else "linking the members"
        case State.FETCHING:
            busy = [
                f"{name} is {what}" for name, what in sorted(progress.items()) if what not in ("", "waiting", "ready")
            ]
            return ", ".join(busy) or "fetching and loading"
        case State.READY:
            return "ready"
        case State.CLOSED:
            return "closed"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)
