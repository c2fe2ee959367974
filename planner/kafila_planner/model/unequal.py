"""A chain of atoms of any sizes, divided by a program over all cuts (the chain-on-chain partition)."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum
from operator import add

from kafila_planner.model.chain import Chain, steps
from kafila_planner.model.device import Device, Division, Split


@dataclass(frozen=True, slots=True)
class UnequalChain(Chain):
    """A bound's unit is a byte read. Where a device may end depends on where it starts, so order matters."""

    crossings = 2

    @property
    def unit_bytes(self) -> int:
        return 1

    def most_units(self, rooms: Sequence[int]) -> tuple[float, ...]:
        read_per_held = max(read / held for read, held in zip(steps(self.read), steps(self.held), strict=True))
        return tuple(min(float(self.read[-1]), room * read_per_held) for room in rooms)

    def limit_blocks(self, start: int, room_bytes: int) -> int:
        return self.cuts[self.reach(start, room_bytes)] - self.cuts[start]

    def could_fill(self, rooms: Sequence[int]) -> bool:
        return sum(rooms) >= self.held[-1]

    def unplaced_bytes(self, rooms: Sequence[int]) -> int:
        return max(steps(self.held))

    def states(self, room_bytes: int) -> int:
        """The cuts that a device's place in the program tries."""
        return sum(max(1, self.reach(start, room_bytes) - start) for start in range(self.atoms))

    def divide(self, devices: Sequence[Device], below_s: float = math.inf) -> Division | None:
        """A greedy pass would not do: who takes most may leave the next device an atom that it can't hold.

        The program is run under a rising ceiling, from the bottleneck that uncut blocks would have, which keeps it
        narrow.
        """
        read = self.read[-1]
        rate = fsum(1 / device.per_byte_s for device in devices)
        ceiling = (read + fsum(device.fixed_s / device.per_byte_s for device in devices)) / rate
        highest = min(below_s, max(device.cost_s(read) for device in devices))
        while True:
            ceiling = min(1.25 * ceiling, highest)
            found = self._program(devices, ceiling, max)
            if found is not None or ceiling == highest:
                return None if found is None else Division(*found)

    def cheapest(self, devices: Sequence[Device]) -> Callable[[float], Split | None]:
        def within(tau: float) -> Split | None:
            found = self._program(devices, tau, add)
            return None if found is None else Split(*found, self._slowest_s(devices, found[0]))

        return within

    def stage_costs(self, devices: Sequence[Device], low_s: float, high_s: float) -> set[float]:
        read, costs = self.read, set()
        for device in devices:
            fixed, per_byte = device.fixed_s, device.per_byte_s
            for start in range(self.atoms):
                above = read[start] + int(max(0.0, low_s - fixed) / per_byte * (1 - 1e-9))
                last = self.reach(start, device.room_bytes)
                for end in range(bisect_left(read, above, start + 1), last + 1):
                    cost = fixed + (read[end] - read[start]) * per_byte
                    if cost > high_s:
                        break
                    if cost > low_s:
                        costs.add(cost)
        return costs

    def nothing(self) -> list[float]:
        """What `extended` begins with: nobody has taken an atom yet."""
        return [0.0] + [math.inf] * self.atoms

    def extended(
        self,
        before: list[float],
        device: Device,
        ends: range,
        ceiling_s: float,
        join: Callable[[float, float], float] = add,
    ) -> tuple[list[float], list[int]]:
        """One device more: f_i(b) = min over a of join(f_{i-1}(a), cost_i(a, b)) for each end, and the a that gives it.

        No stage may cost more than the ceiling. join: `add` for the sum of stages, `max` for the slowest.
        """
        best = [math.inf] * len(before)
        chosen = [0] * len(before)
        read, held, room = self.read, self.held, device.room_bytes
        fixed, per_byte = device.fixed_s, device.per_byte_s
        for start in range(ends.stop - 1):
            so_far = before[start]
            if so_far == math.inf:
                continue
            begun = read[start]
            for end in range(max(start + 1, ends.start), min(ends.stop, bisect_right(held, held[start] + room))):
                cost = fixed + (read[end] - begun) * per_byte
                if cost > ceiling_s:
                    break
                value = join(so_far, cost)
                if value < best[end]:
                    best[end], chosen[end] = value, start
        return best, chosen

    def _program(
        self, devices: Sequence[Device], ceiling_s: float, join: Callable[[float, float], float]
    ) -> tuple[tuple[int, ...], float] | None:
        """The counts with the least value, and the value; None if no division keeps below the ceiling."""
        best, choices = self.nothing(), []
        for place, device in enumerate(devices):
            best, chosen = self.extended(best, device, _ends(self.atoms, len(devices), place), ceiling_s, join)
            choices.append(chosen)
        return None if math.isinf(best[-1]) else (_trace_back(choices, self.atoms), best[-1])

    def _slowest_s(self, devices: Sequence[Device], counts: Sequence[int]) -> float:
        slowest, start = 0.0, 0
        for device, count in zip(devices, counts, strict=True):
            slowest = max(slowest, device.cost_s(self.read[start + count] - self.read[start]))
            start += count
        return slowest


def _ends(atoms: int, devices: int, place: int) -> range:
    """Where the device at a place can end: it and those before take one atom at least, and so do those to come."""
    return range(atoms if place == devices - 1 else place + 1, atoms - (devices - 1 - place) + 1)


def _trace_back(choices: Sequence[Sequence[int]], atoms: int) -> tuple[int, ...]:
    """Counts from each device's chosen start by end."""
    counts = []
    end = atoms
    for chosen in reversed(choices):
        counts.append(end - chosen[end])
        end = chosen[end]
    return tuple(reversed(counts))
