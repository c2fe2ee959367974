"""Finds a session by what a person calls it: id, number of the code, whole code, or its model's name."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from sidecar.errors import InvalidInput, KafilaError, NotFound
from sidecar.session.channel import Channel
from sidecar.session.code import parse_code


class Named(Protocol):
    """What a session is found by."""

    @property
    def id(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def channel(self) -> Channel: ...
    @property
    def is_open(self) -> bool: ...


S = TypeVar("S", bound=Named)


def find_session(wanted: str, sessions: Sequence[S]) -> S:
    """The session that `wanted` names; with an empty name, the only open one.

    Raises:
        NotFound: there is none.
        InvalidInput: there are several.
    """
    if not wanted:
        found = [session for session in sessions if session.is_open]
    else:
        found = [session for session in sessions if session.id == wanted] or [
            session for session in sessions if session.is_open and _is_called(session, wanted)
        ]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidInput(f"{len(found)} sessions answer to {wanted or 'that'!r}: name one by its code's number")
    name = f"{wanted[:80]!r}" if wanted else "open"
    raise NotFound(f"this machine is in no session {name}: `ollama session list` shows those it is in")


def _is_called(session: Named, wanted: str) -> bool:
    model = session.channel.terms.model
    if wanted in (model, model.rsplit("/", 1)[-1]):
        return True
    try:
        ours = parse_code(session.code)
        return wanted == str(ours.room) or parse_code(wanted).short == ours.short
    except KafilaError:
        return False
