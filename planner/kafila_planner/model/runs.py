"""How an engine runs so many sequences: never all that wait, which would travel as a convoy, one stage at work and the
others idle, but at most `rows` a run, whatever waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowsPace:
    """What a ring does with so many rows a run: seconds once round it, and of its slowest stage in it."""

    rows: int
    circuit_s: float
    busiest_s: float


def runs(users: int, rows: int) -> int:
    """So that each of so many sequences is in one of them."""
    return -(-users // rows)


def rows_for(users: int, known: Sequence[RowsPace]) -> int:
    """The fewest rows a run that are best for so many sequences at once.

    A token of each takes a circuit, or the slowest stage's ceil(users / rows) runs, whichever is longer.
    """
    if not known or users < 2:
        return 1
    return min(known, key=lambda pace: (max(pace.circuit_s, runs(users, pace.rows) * pace.busiest_s), pace.rows)).rows


def turn_s(users: int, known: Sequence[RowsPace]) -> float:
    """Seconds in which each of so many sequences gets a token, with the rows that `rows_for` finds.

    As there, but the last run has only the rows that are left.
    """
    rows = rows_for(users, known)
    pace = next(one for one in known if one.rows == rows)
    full, left = divmod(users, rows)
    rest_s = next(one.busiest_s for one in known if one.rows >= left) if left else 0.0
    return max(pace.circuit_s, full * pace.busiest_s + rest_s)
