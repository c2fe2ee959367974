"""The model as the planner divides it: a chain of atoms, each a shortest run of blocks that may be cut at both ends.

`EqualChain` and `UnequalChain` answer the same questions; who asks need not know which one it has.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from kafila_planner.model.device import Device, Division, Split


@dataclass(frozen=True, slots=True)
class Chain(ABC):
    """`cuts[a]` is the block at which atom a starts; `read` and `held` are running sums of bytes over atoms.

    All three have one entry more than there are atoms, so that atoms [a, b) read `read[b] - read[a]` bytes a step.

    Lower bounds hand the chain out in units of `unit_bytes` read. `crossings`: with users, how often a program over
    the cuts is run for one division (see `measure`).
    """

    crossings: ClassVar[int]

    cuts: tuple[int, ...]
    read: tuple[int, ...]
    held: tuple[int, ...]

    @property
    def atoms(self) -> int:
        return len(self.cuts) - 1

    def reach(self, start: int, room_bytes: int) -> int:
        """The furthest end such that atoms [start, end) fit in the room; below `start` if even none would."""
        return bisect_right(self.held, self.held[start] + room_bytes) - 1

    def least_held(self) -> int:
        """Bytes of the smallest atom."""
        return min(steps(self.held))

    @property
    @abstractmethod
    def unit_bytes(self) -> int: ...

    @abstractmethod
    def most_units(self, rooms: Sequence[int]) -> tuple[float, ...]:
        """No more than this fits in each room of so many bytes; negative where the room is."""

    @abstractmethod
    def limit_blocks(self, start: int, room_bytes: int) -> int:
        """The most blocks that fit in the room; where they differ, from atom `start` on."""

    @abstractmethod
    def could_fill(self, rooms: Sequence[int]) -> bool:
        """Whether the rooms together hold the chain: certain for equal blocks, else only not ruled out."""

    @abstractmethod
    def unplaced_bytes(self, rooms: Sequence[int]) -> int:
        """Of a chain that fits in no division: bytes of the blocks that find no place."""

    @abstractmethod
    def states(self, room_bytes: int) -> int:
        """What a device of that room adds to a division's share of a budget."""

    @abstractmethod
    def divide(self, devices: Sequence[Device], below_s: float = math.inf) -> Division | None:
        """The division with the least bottleneck, every device with at least one atom; None if there is none.

        A search that needs one of at most `below_s` says so: that may save time, and what is above may not be found.
        """

    @abstractmethod
    def cheapest(self, devices: Sequence[Device]) -> Callable[[float], Split | None]:
        """A function of tau: the division with the least sum of stages of which none costs more than tau."""

    @abstractmethod
    def stage_costs(self, devices: Sequence[Device], low_s: float, high_s: float) -> set[float]:
        """Every cost above low, up to high, that a stage can have."""


def steps(sums: Sequence[int]) -> list[int]:
    """What each atom adds to running sums."""
    return [after - before for before, after in pairwise(sums)]
