"""What a session is doing, in one sentence for people."""

from collections.abc import Mapping, Sequence

from kafila_sidecar.session.coordination.states import Ending, State

_ENDED = {
    Ending.LEFT: "this machine left it",
    Ending.REMOVED: "this machine was removed from it",
    Ending.LOST: "the others may have gone on without this machine",
    Ending.OVER: "it is over for everybody, or this machine could not go on",
}

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
    ending: Ending | None = None,
    repair: str = "",
    chooser: str = "",
) -> str:
    """`waiting`: who has to act; `progress`: what each member said last that it does; `joining`: see `Channel`;
    `shortage`: why the session can't be planned yet, if it can't; `ending`: how it closed here; `repair`: who
    takes over what by the plan that is on its way; `chooser`: the host, while it looks at the plan."""
    match state:
        case State.FORMING if shortage:
            return f"{shortage}: waiting for another member, {_DOOR[joining]}"
        case State.FORMING if wanted and len(present) < wanted:
            missing = wanted - len(present)
            return f"waiting for {missing} more member{'s' if missing > 1 else ''}: {_DOOR[joining]}"
        case State.FORMING if not wanted:
            return f"waiting for members: {_DOOR[joining]}, then `ollama session start`"
        case State.REPLANNING if shortage:
            return shortage
        case State.FORMING | State.PLANNING | State.REPLANNING:
            return f"measuring: {_names(waiting)}" if waiting else "planning"
        case State.LINKING if chooser and not waiting:
            return f"waiting for {chooser} to choose a plan, or say `ollama session start`: nothing is fetched before"
        case State.LINKING:
            links = f"linking: {_names(waiting)}" if waiting else "linking the members"
            return "; ".join(part for part in (repair, links) if part)
        case State.FETCHING:
            busy = [
                f"{name} is {what}" for name, what in sorted(progress.items()) if what not in ("", "waiting", "ready")
            ]
            return "; ".join(part for part in (repair, ", ".join(busy) or "fetching and loading") if part)
        case State.READY:
            return "ready"
        case State.CLOSED:
            return f"closed: {_ENDED[ending]}" if ending else "closed"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)
