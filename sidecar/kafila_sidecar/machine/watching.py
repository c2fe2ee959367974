"""Who watches a session: each snapshot is made once, when something changed, however many are watching."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.session.driving.changes import Change

EVERYTHING = ~Change(0)


@dataclass(frozen=True, slots=True)
class Shown:
    """A session as it is, and what of it is other than in the snapshot that the same watcher got before."""

    session: pb.Session
    what: Change


class Watch:
    """What one watcher has not been shown yet."""

    def __init__(self) -> None:
        self._pending = Change(0)
        self._changed = asyncio.Event()

    def note(self, what: Change) -> None:
        self._pending |= what
        self._changed.set()

    async def next(self) -> Change:
        """All that changed since it was asked last; waits until there is something."""
        await self._changed.wait()
        self._changed.clear()
        what, self._pending = self._pending, Change(0)
        return what


class Changes:
    """What changes in one session, from those who make it to those who watch."""

    def __init__(self) -> None:
        self.count = 0
        self._watches: dict[Watch, None] = {}  # in the order in which they came

    def note(self, what: Change) -> None:
        """Something is other than before."""
        self.count += 1
        for watch in self._watches:
            watch.note(what)

    @contextmanager
    def watch(self) -> Iterator[Watch]:
        """From now on."""
        watch = Watch()
        self._watches[watch] = None
        try:
            yield watch
        finally:
            del self._watches[watch]


class Snapshots:
    """One session's, which all watchers share."""

    def __init__(self, changes: Changes, take: Callable[[], pb.Session]) -> None:
        self._changes = changes
        self._take = take
        self._latest: pb.Session | None = None
        self._taken_at = -1

    async def watch(self) -> AsyncGenerator[Shown, None]:
        """The session now and after each change that shows, for ever."""
        last: pb.Session | None = None
        what = EVERYTHING
        with self._changes.watch() as watch:
            while True:
                session = self._now()
                if session is not last:
                    yield Shown(session, what)
                    last, what = session, Change(0)
                what |= await watch.next()

    def _now(self) -> pb.Session:
        """The same one, as long as nothing shows that would be other in a new one."""
        if self._latest is None or self._taken_at != self._changes.count:
            self._taken_at = self._changes.count
            session = self._take()
            if session != self._latest:
                self._latest = session
        assert self._latest is not None
        return self._latest
