"""A member in its role, and the blocks divided among such."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """A stage that reads n bytes costs fixed_s + n · per_byte_s, in `room_bytes` of memory.

    If it is the head, fixed_s has the head's read in it and room_bytes lacks what the head holds.
    """

    fixed_s: float
    per_byte_s: float
    room_bytes: int

    def cost_s(self, read_bytes: int) -> float:
        return self.fixed_s + read_bytes * self.per_byte_s


@dataclass(frozen=True, slots=True)
class Division:
    """Atoms of each device, in order, and the slowest stage's cost."""

    counts: tuple[int, ...]
    bottleneck_s: float


@dataclass(frozen=True, slots=True)
class Split:
    """Atoms of each device, in order, the sum of the stages' costs, and the largest of them."""

    counts: tuple[int, ...]
    compute_s: float
    slowest_s: float
