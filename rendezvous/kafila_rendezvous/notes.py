"""The file that tells the next run which mailboxes live."""

import logging
from collections.abc import Iterable
from pathlib import Path

from kafila_rendezvous.rooms.living import LifeChange, LivingMailbox, living_in

logger = logging.getLogger(__name__)

SLACK_LINES = 10_000  # beyond two for each living mailbox, then the file is written anew


class Notes:
    """Whoever can't be noted doesn't come back after a restart; nothing else depends on it."""

    def __init__(self, path: Path, *, most: int) -> None:
        """Reads what the run before noted, at most so many mailboxes."""
        self._path = path
        self._most = most
        self._lines = 0
        self._living: set[LivingMailbox] = set()
        self.before = self._read()

    def note(self, changes: Iterable[LifeChange]) -> None:
        """Adds to the file, or writes it anew when most of it is history."""
        said = []
        for change in changes:
            said.append(str(change))
            (self._living.add if change.begins else self._living.discard)(change.mailbox)
        if not said:
            return
        try:
            if self._lines + len(said) > 2 * len(self._living) + SLACK_LINES or not self._lines:
                self._write_anew()
            else:
                with self._path.open("a", encoding="ascii") as file:
                    file.writelines(said)
                self._lines += len(said)
        except OSError as error:
            self._lines = 0  # what was missed comes with the next one
            logger.warning("mailboxes_not_noted error=%s", error.strerror)

    def _read(self) -> frozenset[LivingMailbox]:
        try:
            with self._path.open(encoding="ascii", errors="replace") as file:
                return living_in(file, self._most)
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            logger.warning("mailboxes_not_known error=%s", error.strerror)
            return frozenset()

    def _write_anew(self) -> None:
        beside = self._path.with_suffix(".new")
        beside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside.touch(mode=0o600)
        with beside.open("w", encoding="ascii") as file:
            file.writelines(str(LifeChange(one, begins=True)) for one in self._living)
        beside.replace(self._path)
        self._lines = len(self._living) + 1
