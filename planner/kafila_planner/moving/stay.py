"""The division of a ring that is best with its toll: a program over all cuts, exact for one user."""

from collections.abc import Sequence
from dataclasses import dataclass

from kafila_planner.model.case import Case
from kafila_planner.model.rates import Layout
from kafila_planner.moving.toll import NANOSECONDS, Gate, Toll

AHEAD_TOKENS = 4096
"""What a move is weighed against: a user's next tokens, some ten answers. Slower ones cost that many times the gap."""


@dataclass(frozen=True, slots=True)
class Paid:
    """So far along the ring: the price in nanoseconds, the longest toll in it, and where the stages end (in atoms)."""

    price_ns: int
    longest_ns: int
    ends: tuple[int, ...]

    @property
    def key(self) -> tuple[int, int, tuple[int, ...]]:
        return self.price_ns, self.longest_ns, self.ends


def divided(case: Case, gates: Sequence[Gate], order: tuple[int, ...], slowest_s: float) -> Layout | None:
    """The cheapest by toll and `AHEAD_TOKENS` steps at batch 1, no stage slower than that; None if nothing fits."""
    atoms = case.chain.atoms
    paid = {0: Paid(0, 0, ())}
    for place, member in enumerate(order):
        left = len(order) - place - 1
        paid = _one_more(case, gates[member], member, paid, place == 0, atoms - left, slowest_s)
    whole = paid.get(atoms)
    if whole is None:
        return None
    counts = [end - start for start, end in zip((0, *whole.ends[:-1]), whole.ends, strict=True)]
    return Layout(order, tuple(counts))


def toll_of(case: Case, gates: Sequence[Gate], layout: Layout) -> tuple[Toll, int]:
    """Of all stages together, and the longest of them in nanoseconds."""
    total, longest, cuts = Toll(), 0, case.chain.cuts
    for place, (member, (start, end)) in enumerate(zip(layout.order, layout.spans(), strict=True)):
        toll = gates[member].toll(cuts[start], cuts[end], place == 0)
        total, longest = total.with_(toll), max(longest, toll.ns)
    return total, longest


def _one_more(
    case: Case, gate: Gate, member: int, paid: dict[int, Paid], is_head: bool, last_end: int, slowest_s: float
) -> dict[int, Paid]:
    """The best way to each cut with one more stage, which has at least one atom."""
    device, chain = case.device(member, is_head, case.prices[0]), case.chain
    best: dict[int, Paid] = {}
    for start, before in sorted(paid.items()):
        for end in range(start + 1, min(last_end, chain.reach(start, device.room_bytes)) + 1):
            cost_s = device.cost_s(chain.read[end] - chain.read[start])
            if cost_s > slowest_s:
                break
            toll = gate.toll(chain.cuts[start], chain.cuts[end], is_head)
            price_ns = before.price_ns + toll.ns + round(cost_s * AHEAD_TOKENS * NANOSECONDS)
            found = Paid(price_ns, max(before.longest_ns, toll.ns), (*before.ends, end))
            if end not in best or found.key < best[end].key:
                best[end] = found
    return best
