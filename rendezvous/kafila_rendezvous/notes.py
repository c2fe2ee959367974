"""The file that tells the next run which mailboxes live, and which rooms rest."""

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from kafila_rendezvous.rooms.living import LifeChange, LivingMailbox, RestChange, living_in, resting_in

logger = logging.getLogger(__name__)

SLACK_LINES = 10_000  # beyond two for each living mailbox, then the file is written anew


class Notes:
    """Whoever can't be noted doesn't come back after a restart; nothing else depends on it."""

    def __init__(self, path: Path, *, most: int, most_resting: int = 0, clock: Callable[[], float] = time.time) -> None:
        """Reads what the run before noted, at most so many mailboxes and resting rooms. `clock`: seconds since 1970."""
        self._path = path
        self._clock = clock
        self._lines = 0
        self._living: set[LivingMailbox] = set()
        lines = self._read()
        self.before = living_in(lines, most)
        self._resting = resting_in(lines, most_resting)

    def resting(self, longest_s: float) -> list[RestChange]:
        """The rooms that rested when the run before ended, and how long they still do; whatever the clock says, no
        longer than that."""
        now = self._clock()
        left = ((room, serial, until - now) for (room, serial), until in self._resting.items())
        return [RestChange(room, serial, min(for_s, longest_s)) for room, serial, for_s in left if for_s > 0]

    def note(self, changes: Iterable[LifeChange | RestChange]) -> None:
        """Adds to the file, or writes it anew when most of it is history."""
        said = [self._said(change) for change in changes]
        if not said:
            return
        try:
            if self._lines + len(said) > 2 * (len(self._living) + len(self._resting)) + SLACK_LINES or not self._lines:
                self._write_anew()
            else:
                with self._path.open("a", encoding="ascii") as file:
                    file.writelines(said)
                self._lines += len(said)
        except OSError as error:
            self._lines = 0  # what was missed comes with the next one
            logger.warning("mailboxes_not_noted error=%s", error.strerror)

    def _said(self, change: LifeChange | RestChange) -> str:
        if isinstance(change, LifeChange):
            (self._living.add if change.begins else self._living.discard)(change.mailbox)
            return str(change)
        now = self._clock()
        if change.for_s > 0:
            self._resting[change.room, change.serial] = int(now + change.for_s)
        else:
            self._resting.pop((change.room, change.serial), None)
        return change.line(now)

    def _read(self) -> list[str]:
        """Whole lines: half a number is one too, of another mailbox."""
        try:
            with self._path.open(encoding="ascii", errors="replace") as file:
                return [line for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []
        except OSError as error:
            logger.warning("mailboxes_not_known error=%s", error.strerror)
            return []

    def _write_anew(self) -> None:
        beside = self._path.with_suffix(".new")
        beside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside.touch(mode=0o600)
        with beside.open("w", encoding="ascii") as file:
            file.writelines(str(LifeChange(one, begins=True)) for one in self._living)
            file.writelines(f"z {room} {serial} {until}\n" for (room, serial), until in self._resting.items())
        beside.replace(self._path)
        self._lines = len(self._living) + len(self._resting) + 1
