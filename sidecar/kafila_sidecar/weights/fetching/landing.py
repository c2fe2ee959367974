"""What is fetched of what is wanted: where bytes go, how far it is, what is waited for."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from kafila_sidecar.weights.format.manifest import Manifest
from kafila_sidecar.weights.format.ranges import Ranges
from kafila_sidecar.weights.format.units import Unit
from kafila_sidecar.weights.store.store import SpanWriter, Store

Progress = Callable[[int, int], None]
"""Told how many of the wanted bytes are here, and how many are wanted."""

Waiting = Callable[[str], None]
"""Told in a sentence what is waited for; empty when it has come."""


def count(ranges: Mapping[str, Ranges]) -> int:
    return sum(len(of_file) for of_file in ranges.values())


class Tally:
    """Counts bytes as they come, on any thread, and tells of them on the loop's."""

    def __init__(self, here_bytes: int, wanted_bytes: int, progress: Progress | None, waiting: Waiting | None) -> None:
        self._here_bytes = here_bytes
        self._wanted_bytes = wanted_bytes
        self._progress = progress
        self._waiting = waiting
        self._said = ""
        self._notice = ""
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._tell()

    def came(self, count_bytes: int) -> None:
        """So many more are here; fewer, if it is negative."""
        with self._lock:
            self._here_bytes += count_bytes
        self._loop.call_soon_threadsafe(self._tell)

    def waits(self, sentence: str) -> None:
        """Nothing comes at present, and why."""
        self._loop.call_soon_threadsafe(self._say, sentence)

    def notice(self, sentence: str) -> None:
        """Something that people should see while this fetch goes on."""
        self._notice = sentence
        self.waits("")

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(min(self._here_bytes, self._wanted_bytes), self._wanted_bytes)
        self._say("")

    def _say(self, sentence: str) -> None:
        sentence = sentence or self._notice
        if self._waiting is not None and sentence != self._said:
            self._said = sentence
            self._waiting(sentence)


class UnitWriter:
    """Keeps units; those that follow one another are journaled together. Blocks."""

    def __init__(self, store: Store, tally: Tally) -> None:
        self._store = store
        self._tally = tally
        self._writer: SpanWriter | None = None
        self._next = ("", 0)

    def put(self, unit: Unit, data: bytes) -> None:
        """Raises Refused on a full disk."""
        if self._writer is None or self._next != (unit.file, unit.start):
            self.settle()
            self._writer = self._store.writer(unit.file, unit.start)
        self._writer.write(data)
        self._next = (unit.file, unit.end)
        self._tally.came(unit.size_bytes)

    def settle(self) -> None:
        """What was put counts, also after a crash."""
        if self._writer is not None:
            self._writer.settle()
        self._writer = None


class Landing:
    """What other members need to know to bring what is missing here."""

    def __init__(
        self,
        *,
        manifest: Manifest,
        store: Store,
        wanted: Mapping[str, Ranges],
        tally: Tally,
        digest: Callable[[Unit], Awaitable[bytes | None]] | None,
    ) -> None:
        """`digest`: SHA-256 of a unit as the model host has it now, None where it can't be asked; None without one."""
        self.manifest = manifest
        self.digest = digest
        self.tally = tally
        self._store = store
        self._wanted = wanted

    @property
    def missing(self) -> dict[str, Ranges]:
        """By file."""
        return self._store.missing(self._wanted)

    @contextmanager
    def writer(self) -> Iterator[UnitWriter]:
        """For one after another; what was put is settled at the end, whatever that is."""
        writer = UnitWriter(self._store, self.tally)
        try:
            yield writer
        finally:
            writer.settle()

    def drop(self, units: list[Unit]) -> None:
        """These bytes are not what they should be: they are missing again. Blocks."""
        for file, start, end in units:
            if (held := self._store.held(file)) is not None and held.ranges.touches(start, end):
                self._store.lose(file, start, end)
                self.tally.came(start - end)


class Members(Protocol):
    """The other members of a session, as far as they hold weights; `sharing.session.SessionWeights`."""

    async def bring(self, landing: Landing) -> None:
        """As much of what is missing as they can give; sources that vanish are done without."""

    async def more(self, wait_s: float) -> bool:
        """Waits until somebody may hold more than before; false if nobody does in that time."""

    def gave(self, file: str) -> list[Unit]:
        """What of a file came from members."""

    def distrust(self, landing: Landing, units: list[Unit], sentence: str) -> None:
        """They gave something wrong: these units are fetched elsewhere. Blocks."""
