"""The log that is kept: one folder with what the sidecar and the server say, bounded in size, for this user alone.

Nothing in it says who takes part, where, or with which words: names, addresses, codes and keys are taken out before a
line is written. What goes to standard error stays as it is.
"""

import json
import logging
import os
import re
import stat
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from kafila_sidecar.foreign import LONGEST_LOG_LINE, line

FILE = "sidecar.jsonl"
LARGEST_FILE_BYTES = 4 << 20
OLD_FILES = 3

_HIDDEN = (
    (re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE), "<url>"),
    (re.compile(r"\b\d{1,6}(?:-[a-z]+){3,}(?:@\S+)?", re.IGNORECASE), "<code>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b(?::\d+)?"), "<address>"),
    (re.compile(r"\[?(?<![\w:])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?:%\w+)?(?:\]:\d+)?", re.IGNORECASE), "<address>"),
    (re.compile(r"\b[\w-]+(?:\.[\w-]+)+:\d{2,5}\b"), "<address>"),
    (re.compile(r"#[a-z2-7]{20}\b"), "#<key>"),
    (re.compile(r"\b(?=[A-Za-z_+=]*\d)[A-Za-z0-9_+=]{20,}"), "<key>"),
)
_PERSONAL = frozenset({"member", "peer", "by", "sent_by", "host", "sender", "name"})
_ARGUMENT = re.compile(r"(?:(\w+)=)?%(?!%)[^a-zA-Z]*[a-zA-Z]")


def scrubbed(text: str, names: Collection[str] = ()) -> str:
    """Without names, addresses, codes and keys."""
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "<member>", text)
    for pattern, instead in _HIDDEN:
        text = pattern.sub(instead, text)
    return text


class LogBook(RotatingFileHandler):
    """Writes records as JSON, one a line. `names`: of all members that are known now."""

    def __init__(self, folder: Path, names: Callable[[], Collection[str]]) -> None:
        """Raises OSError where it can't be written."""
        for made in (folder.parent, folder):  # a mode counts for the last folder of a path alone
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.names = names
        super().__init__(
            folder / FILE, maxBytes=LARGEST_FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8", errors="replace"
        )
        self.setFormatter(EntryFormatter(self))

    def handleError(self, record: logging.LogRecord) -> None:
        """A disk that is full costs the entry: standard error has it."""

    def _open(self) -> TextIOWrapper:
        """For this user alone, and never what somebody linked there."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.baseFilename, flags, 0o600)
        os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR)
        return open(descriptor, "a", encoding=self.encoding, errors=self.errors)


class EntryFormatter(logging.Formatter):
    """One entry; `docs/numbers.md` says what is in it."""

    def __init__(self, book: LogBook) -> None:
        super().__init__()
        self._book = book

    def format(self, record: logging.LogRecord) -> str:
        names = self._book.names()
        entry = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": "WARN" if record.levelno == logging.WARNING else record.levelname,
            "from": "sidecar",
            "where": record.name,
            "said": scrubbed(line(_message(record), LONGEST_LOG_LINE), names),
        }
        if record.exc_info:
            entry["traceback"] = scrubbed(self.formatException(record.exc_info)[-LONGEST_LOG_LINE:], names)
        return json.dumps(entry, ensure_ascii=False)


def _message(record: logging.LogRecord) -> str:
    """With whom it is about left out, wherever that is said as `member=%s`."""
    if not isinstance(record.args, tuple):
        return record.getMessage()
    keys = [found[1] for found in _ARGUMENT.finditer(str(record.msg))]
    hidden: list[Any] = list(record.args)
    for at, key in enumerate(keys[: len(hidden)]):
        if key in _PERSONAL:
            hidden[at] = "<member>"
    try:
        return str(record.msg) % tuple(hidden) if hidden else str(record.msg)
    except (TypeError, ValueError):  # a place that takes numbers only
        return record.getMessage()
