"""Which mailboxes live, and which rooms rest, as lines of text that outlast the server: only those come back after a
restart.

`+ room serial mailbox` opens a mailbox, `- …` ends it; `z room serial until` lays a room to rest until then, in seconds
since 1970, `w room serial` ends that. Numbers are decimal. A line that was torn by a crash is skipped.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LINE = re.compile(r"([+-]) (\d{1,10}) (\d{1,20}) (\d{1,10})")
_RESTS = re.compile(r"z (\d{1,10}) (\d{1,20}) (\d{1,12})|w (\d{1,10}) (\d{1,20})")


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


@dataclass(frozen=True, slots=True)
class RestChange:
    """A room rests for so many seconds from now on; 0: not any more."""

    room: int
    serial: int
    for_s: float

    def line(self, wall: float) -> str:
        """`wall`: seconds since 1970, now."""
        if self.for_s <= 0:
            return f"w {self.room} {self.serial}\n"
        return f"z {self.room} {self.serial} {int(wall + self.for_s)}\n"


def resting_in(lines: Iterable[str], most: int) -> dict[tuple[int, int], int]:
    """Room and serial of those whose rest no line ends, at most so many of the first, and until when."""
    found: dict[tuple[int, int], int] = {}
    for line in lines:
        if (match := _RESTS.fullmatch(line.strip())) is None:
            continue
        room, serial, until, woken, its_serial = match.groups()
        if room is None:
            found.pop((int(woken), int(its_serial)), None)
        elif len(found) < most:
            found[int(room), int(serial)] = int(until)
    return found


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
