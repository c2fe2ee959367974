"""Finds a session by what a person calls it: id, number of the code, whole code, or its model's name."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput, KafilaError, NotFound
from kafila_sidecar.session.rendezvous.code import Code, parse_code
from kafila_sidecar.weights.providers.folder import folder_name


class Named(Protocol):
    """What a session is found by."""

    @property
    def id(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def terms(self) -> ring_pb2.SessionTerms: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def ended(self) -> str: ...


S = TypeVar("S", bound=Named)


def find_session(wanted: str, sessions: Sequence[S]) -> S:
    """The session that `wanted` names; with an empty name, the only open one.

    Raises:
        NotFound: there is none.
        InvalidInput: there are several.
    """
    found = _found(wanted, sessions)
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidInput(f"{len(found)} sessions answer to {wanted or 'that'!r}: name one by its code's number")
    name = f"{wanted[:80]!r}" if wanted else "open"
    why = f", and its last one ended, since {sessions[-1].ended}" if sessions and sessions[-1].ended else ""
    raise NotFound(f"this machine is in no session {name}{why}: `ollama session list` shows those it is in")


def session_with_id(wanted: str, sessions: Sequence[S]) -> S:
    """The session with this very id: what programs name it by, and no person's way of calling it will do.

    Raises NotFound where there is none.
    """
    for session in sessions:
        if session.id == wanted:
            return session
    raise NotFound("this machine is not in the session of that model any more: join it again with its code")


def _found(wanted: str, sessions: Sequence[S]) -> list[S]:
    """By the closest way of calling a session that finds any."""
    is_open = [session for session in sessions if session.is_open]
    if not wanted:
        return is_open
    return (
        [session for session in sessions if session.id == wanted]
        or [session for session in is_open if _is_called(session, wanted)]
        or [session for session in is_open if _is_in_room_of(session, wanted)]
    )


def _is_called(session: Named, wanted: str) -> bool:
    terms = session.terms
    if wanted in (terms.model, terms.model.rsplit("/", 1)[-1]):
        return True
    if terms.folder and wanted.startswith("/") and folder_name(wanted) == terms.model:
        return True
    ours = _code(session.code)
    theirs = _code(wanted)
    return ours is not None and (wanted == str(ours.room) or (theirs is not None and theirs.short == ours.short))


def _is_in_room_of(session: Named, wanted: str) -> bool:
    """By a code that was replaced since: the number stays."""
    ours, theirs = _code(session.code), _code(wanted)
    return ours is not None and theirs is not None and ours.room == theirs.room


def _code(text: str) -> Code | None:
    try:
        return parse_code(text)
    except KafilaError:
        return None
