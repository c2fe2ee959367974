"""What a session is doing, in one sentence for people."""

from collections.abc import Mapping, Sequence

from kafila_sidecar.session.coordination.states import State

_DOOR = {  # what to do about members who are missing
    "open": "pass the code on",
    "locked": "the session is locked, say `ollama session unlock`",
    "unreachable": "nobody can join until the rendezvous answers again",
    "paused": "joining is paused since the code was guessed wrongly too often, say `ollama session code --new`",
}


def doing(
    state: State,
    *,
    wanted: int,
    present: Sequence[str],
    waiting: Sequence[str],
    progress: Mapping[str, str],
    joining: str,
    shortage: str = "",
) -> str:
    """`waiting`: who has to act; `progress`: what each member said last that it does; `joining`: see `Channel`;
    `shortage`: why those present can't hold the model, if they can't."""
    match state:
        case State.FORMING if shortage:
            return f"{shortage}: waiting for another member, {_DOOR[joining]}"
        case State.FORMING if wanted and len(present) < wanted:
            missing = wanted - len(present)
            return f"waiting for {missing} more member{'s' if missing > 1 else ''}: {_DOOR[joining]}"
        case State.FORMING if not wanted:
            return f"waiting for members: {_DOOR[joining]}, then `ollama session start`"
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
