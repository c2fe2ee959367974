"""The sessions that this machine takes part in, and the last ones that it took part in."""

import asyncio
from collections.abc import Iterator

from kafila_sidecar.errors import Refused
from kafila_sidecar.machine.participation import Participation
from kafila_sidecar.session.lookup import find_session, session_with_id
from kafila_sidecar.session.rendezvous.code import Code

KEPT_CLOSED = 16  # sessions that are over and can still say why


class Sessions:
    """By id, in the order of joining."""

    def __init__(self) -> None:
        self._by_id: dict[str, Participation] = {}

    def __iter__(self) -> Iterator[Participation]:
        return iter(self._by_id.values())

    def run(self, session: Participation, tasks: asyncio.TaskGroup) -> None:
        """One more."""
        self._by_id[session.id] = session
        closed = [key for key, other in self._by_id.items() if not other.is_open]
        for key in closed[: max(0, len(closed) - KEPT_CLOSED)]:
            del self._by_id[key]
        tasks.create_task(session.run(), name=f"session {session.id}")

    def find(self, wanted: str) -> Participation:
        """What a person calls a session; see `find_session`."""
        return find_session(wanted, list(self))

    def with_id(self, wanted: str) -> Participation:
        """The session with this very id, which programs name it by; see `session_with_id`."""
        return session_with_id(wanted, list(self))

    def hosted(self, wanted: str, what: str) -> Participation:
        """An open session that this machine hosts; raises Refused for another's, which can't do `what`."""
        session = self.find(wanted)
        session.check_open()
        if not session.channel.is_host:
            raise Refused(f"only the host, {session.channel.host}, can {what}")
        return session

    def opened_by(self, code: Code) -> Participation | None:
        """The open session that a code leads to."""
        return next((session for session in self if session.is_open and session.is_opened_by(code)), None)

    def promised_bytes(self) -> int:
        """What the plans of open sessions gave to this machine and is not in memory yet; what is, counts as taken."""
        return sum(session.promised_bytes for session in self if session.is_open)

    def leave_all(self) -> None:
        """Begins to leave every session."""
        for session in self:
            session.driver.leave()
