"""How many exchanges were left unconfirmed, kept in a session's folder."""

import os
from pathlib import Path

from kafila_sidecar.errors import Refused

_FILE = "guesses"
_END = "\n"  # half a number is one too, and a smaller one


class FileGuesses:
    """A `pake.GuessStore`; a file that can't be read is refused rather than taken for zero."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE

    def load(self) -> int:
        """Zero when nothing was saved. Raises Refused for a damaged file."""
        try:
            text = self._path.read_text("ascii")
            if not text.endswith(_END):
                raise ValueError("it is cut short")
            return int(text)
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            raise Refused(f"can't read how often the code was guessed from {self._path}: {error}") from error

    def save(self, count: int) -> None:
        """Raises Refused when it can't be written: an exchange that isn't counted must not go on."""
        fresh = self._path.with_name(f"{_FILE}.new")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with fresh.open("w", encoding="ascii") as file:
                file.write(f"{count}{_END}")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
        except OSError as error:
            raise Refused(f"can't note how often the code was guessed in {self._path}: {error}") from error
