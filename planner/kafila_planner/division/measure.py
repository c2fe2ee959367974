"""What `latency` and `throughput` minimise in a given ring: seconds a token, of all users together.

With U users and steps of b sequences that is max(circuit(b) / U, bottleneck(b) / b), or, in whole runs, with the b that
a run has on the average. Latency is the case U = b = 1, where the circuit alone counts. For equal blocks the order of
the ring doesn't matter to the division, so a set, a head and a batch size are enough; the ring comes in as its network
time.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from kafila_planner.model.chain import Chain
from kafila_planner.model.device import Device, Split
from kafila_planner.model.rates import token_s


@dataclass(frozen=True, slots=True)
class Goal:
    """U, the sequences that a step has on the average, and the network's share of a circuit."""

    users: int
    share: float
    network_s: float

    def token_s(self, split: Split) -> float:
        return token_s(self.users, self.share, split.compute_s + self.network_s, split.slowest_s)


def balance(chain: Chain, devices: Sequence[Device], goal: Goal) -> Split | None:
    """The division with the fewest seconds a token, exactly; None if none fits.

    Bounding every stage by tau raises the least sum of stages, so the two terms cross at a possible bottleneck. The
    optimum is on one side of the crossing.
    """
    within = chain.cheapest(devices)
    free = within(math.inf)
    if free is None or (free.compute_s + goal.network_s) / goal.users >= free.slowest_s / goal.share:
        return free

    def crossed(tau: float) -> bool:
        split = within(tau)
        return split is not None and tau / goal.share >= (split.compute_s + goal.network_s) / goal.users

    low = goal.share * (free.compute_s + goal.network_s) / goal.users
    values = [low, *sorted(chain.stage_costs(devices, low, free.slowest_s))]
    place = bisect_left(values, True, key=crossed)
    sides = [within(tau) for tau in values[max(0, place - 1) : place + 1]]
    return min((split for split in sides if split is not None), key=goal.token_s)
