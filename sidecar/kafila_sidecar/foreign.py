"""Text of other machines, made harmless for terminals and logs where it enters; Go has the same in internal/foreign."""

import logging
import unicodedata
from typing import Any

SHOWN = "\N{REPLACEMENT CHARACTER}"  # stands for a character that was taken away, so that people see that there was one
LONGEST_SENTENCE = 2000  # characters; it travels in a header
LONGEST_LOG_LINE = 8000  # characters

_BREAKS = frozenset("\t\n\v\f\r\x85\u2028\u2029")  # what ends lines, and tabs
_COMMANDS = frozenset({"Cc", "Cf", "Cs"})  # Unicode's categories: control, format (directions, no width), half a pair


def line(text: str, most: int = LONGEST_SENTENCE) -> str:
    """One line of at most `most` characters that a terminal only shows: nothing commands it, nothing is invisible."""
    return "".join(map(_harmless, text[:most]))


class HarmlessFormatter(logging.Formatter):
    """Writes each record as one line, and a traceback as its lines: both may quote other machines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = line(record.message, LONGEST_LOG_LINE)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return "\n".join(line(one, LONGEST_LOG_LINE) for one in super().formatException(ei).split("\n"))


def _harmless(letter: str) -> str:
    if letter in _BREAKS:
        return " "
    return SHOWN if unicodedata.category(letter) in _COMMANDS else letter
