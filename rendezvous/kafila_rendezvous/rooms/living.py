"""Which mailboxes live, as lines of text that outlast the server: only those come back after a restart.

`+ room serial mailbox` opens one, `- …` ends it, numbers in decimal. A line that was torn by a crash is skipped.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LINE = re.compile(r"([+-]) (\d{1,10}) (\d{1,20}) (\d{1,10})")


@dataclass(frozen=True, slots=True)
class LivingMailbox:
    """A mailbox of a room's one life; the number is given again, the serial never."""

    room: int
    serial: int
    mailbox: int


@dataclass(frozen=True, slots=True)
class LifeChange:
    """A mailbox begins or ends."""

    mailbox: LivingMailbox
    begins: bool

    def __str__(self) -> str:
        one = self.mailbox
        return f"{'+' if self.begins else '-'} {one.room} {one.serial} {one.mailbox}\n"


def living_in(lines: Iterable[str], most: int) -> frozenset[LivingMailbox]:
    """Those whose end no line tells, at most so many of the first."""
    found: dict[LivingMailbox, None] = {}
    for line in lines:
        if (match := _LINE.fullmatch(line.strip())) is None:
            continue
        one = LivingMailbox(*(int(number) for number in match.groups()[1:]))
        if match[1] == "-":
            found.pop(one, None)
        elif len(found) < most:
            found[one] = None
    return frozenset(found)
