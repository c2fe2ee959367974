"""Writes down what is kept of one session whenever it changes, and reads what there is at the start."""

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.session.keeping.file import read_whole, set_aside, write_whole
from kafila_sidecar.session.keeping.kept import KEPT_FOR_S, KeptSession, kept_from
from kafila_sidecar.session.membership.members import Member

log = logging.getLogger(__name__)

FILE = "kept"
REACHED_EVERY_S = 5.0  # so often is written where the others are, if they are elsewhere; with all else at once
SEEN_EVERY_S = 3600.0  # how exactly it is noted when this machine was in the session last
REST_WITHIN_S = 1.0  # how exactly it is noted until when no better plan is taken


class Keeper:
    """One session's, in a folder of its own. The session goes on where nothing can be written."""

    def __init__(self, folder: Path, kept: KeptSession, clock: Callable[[], float] = time.time) -> None:
        """`clock`: seconds since 1970, as far as this machine knows."""
        self.folder = folder
        self.kept = kept
        self.trouble = ""  # in one sentence, while what is on the disk is older than the session
        self._clock = clock
        self._written: tuple[KeptSession, int] | None = None  # what is on the disk, and how long its log was then
        self._forgotten = False
        self._reached_at = 0.0

    @property
    def is_too_old(self) -> bool:
        """Whether this machine was in the session too long ago to come back by itself, by the clock as it is now, which
        may be wrong for a while after a start."""
        return self._clock() - self.kept.seen_at > KEPT_FOR_S

    def note(self, **changes: Any) -> None:
        """Takes over what is other than before, as fields of `KeptSession`; returns when it is on the disk."""
        if any(getattr(self.kept, name) != value for name, value in changes.items()):
            self.kept = replace(self.kept, **changes)
        as_it_is = self.kept, len(self.kept.log)
        if as_it_is == self._written or self._forgotten:
            return
        try:
            self._write(self.kept.to_bytes())
        except OSError as error:
            self._tell_trouble(error)
        else:
            self._written, self.trouble = as_it_is, ""

    def seen(self) -> None:
        """This machine is in the session now."""
        now = self._clock()
        if abs(now - self.kept.seen_at) >= SEEN_EVERY_S:
            self.note(seen_at=now)

    @property
    def rests_s(self) -> float:
        """For how long no better plan is taken, as far as this machine knew last; by a clock that may have been set
        meanwhile."""
        return max(0.0, self.kept.rests_until - self._clock())

    def rests(self, left_s: float) -> None:
        """For so long none is, from now on."""
        until = self._clock() + left_s
        if left_s > 0.0 and abs(until - self.kept.rests_until) > REST_WITHIN_S:
            self.note(rests_until=until)

    def reached(self, member: Member, addresses: Sequence[Address]) -> None:
        """A member said where it can be reached now. Who says so often makes this disk write no more often."""
        self.kept = self.kept.reached(member, addresses)
        now = self._clock()
        if abs(now - self._reached_at) >= REACHED_EVERY_S:
            self._reached_at = now
            self.note()

    def forget(self) -> None:
        """The session is over for this machine."""
        self._forgotten = True
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, data: bytes) -> None:
        write_whole(self.folder / FILE, data)

    def _tell_trouble(self, error: OSError) -> None:
        why = error.strerror or type(error).__name__
        sentence = f"this machine could not come back by itself: {self.folder} can't be written ({why})"
        if sentence != self.trouble:
            log.warning("%s", sentence)
        self.trouble = sentence


def kept_sessions(folder: Path) -> Iterator[Keeper]:
    """All that are kept below a folder; what can't be read is set aside, and said."""
    for path in sorted(folder.glob(f"*/{FILE}")):
        data = read_whole(path)
        if data is None:
            continue
        try:
            kept = kept_from(data)
        except KafilaError as error:
            set_aside(path, str(error))
        else:
            yield Keeper(path.parent, kept)
