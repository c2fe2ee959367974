"""A lower bound for every ring that begins with a given prefix: what q more members cost and help at the least."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import fsum

from kafila_planner.model.cost import Prices
from kafila_planner.search.pool import Pool


@dataclass(frozen=True, slots=True)
class Tails:
    """One batch size. Each list holds (value, member) with the most favourable first.

    `fixed` in seconds, `entry` the weight of a member's cheapest edge, `rate` bytes a second, `room` bytes.
    """

    pool: Pool
    prices: Prices
    fixed: tuple[tuple[float, int], ...]
    entry: tuple[tuple[int, int], ...]
    rate: tuple[tuple[float, int], ...]
    room: tuple[tuple[int, int], ...]

    def least_s(self, order: Sequence[int], sums: Sequence[float], weight: int) -> float:
        """Seconds a token. `sums[a]`: the least sum of the prefix' stages if they end at atom a."""
        head_entry = next(entry for entry, member in self.entry if member == order[0])
        rate = fsum(1 / self.prices.per_byte[member] for member in order)
        bottleneck = self._work(order) / rate / self.prices.share
        closed = (sums[-1] + self.pool.network_s(weight + head_entry * (len(order) > 1))) / self.pool.users
        left = len(self.fixed) - len(order)
        if not left:
            return max(closed, bottleneck)
        return min(max(closed, bottleneck), *self._longer(order, sums, weight + head_entry, rate))

    def _longer(self, order: Sequence[int], sums: Sequence[float], weight: int, rate: float) -> list[float]:
        """The same for one, two, … more members."""
        chain = self.pool.case.chain
        held, work = chain.held, self._work(order)
        rest = self._rest(order, sums)
        bounds = [math.inf]
        for fixed, entry, faster, room in zip(
            _running(self.fixed, order),
            _running(self.entry, order),
            _running(self.rate, order),
            _running(self.room, order),
            strict=True,
        ):
            cut = bisect_left(held, held[-1] - room)
            if cut < chain.atoms:
                circuit = rest[max(0, cut)] + fixed + self.pool.network_s(int(weight + entry))
                bounds.append(max(circuit / self.pool.users, work / (rate + faster) / self.prices.share))
        return bounds

    def _work(self, order: Sequence[int]) -> float:
        """Bytes to read, with those that the prefix could read in the time of its overheads and of its head."""
        prices = self.prices
        waits = fsum(prices.fixed[member] / prices.per_byte[member] for member in order)
        return self.pool.case.chain.read[-1] + waits + prices.head[order[0]] / prices.per_byte[order[0]]

    def _rest(self, order: Sequence[int], sums: Sequence[float]) -> list[float]:
        """For each atom: the least sum of the prefix and of the blocks after it, if it ends there or later.

        The blocks after it are read at the rate of the fastest member left.
        """
        read = self.pool.case.chain.read
        fastest = 1 / next(rate for rate, member in self.rate if member not in order)
        rest = [math.inf] * len(sums)
        for cut in range(len(sums) - 2, -1, -1):
            rest[cut] = min(rest[cut + 1], sums[cut] + (read[-1] - read[cut]) * fastest)
        return rest


def tails_of(pool: Pool, prices: Prices) -> Tails:
    members = range(len(pool.case.members))
    entries = [min((pool.weights[a][b] for b in members if a != b), default=0) for a in members]
    return Tails(
        pool=pool,
        prices=prices,
        fixed=tuple(sorted((prices.fixed[member], member) for member in members)),
        entry=tuple(sorted((entries[member], member) for member in members)),
        rate=tuple(sorted(((1 / prices.per_byte[member], member) for member in members), reverse=True)),
        room=tuple(sorted(((pool.case.room_bytes[member], member) for member in members), reverse=True)),
    )


def _running(values: Sequence[tuple[float, int]], order: Sequence[int]) -> list[float]:
    """Running sums over the members that are not in the prefix."""
    return list(accumulate(value for value, member in values if member not in order))
