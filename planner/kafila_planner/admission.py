"""Who is too small, and by how much: checked before anything is fetched."""

from collections.abc import Sequence
from dataclasses import dataclass

from kafila_planner.model.case import Case
from kafila_planner.model.rates import Layout

UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why no division fits. `undersized` is a name."""

    reason: str
    undersized: str
    missing_bytes: int


def size(count: int) -> str:
    """Bytes for people."""
    for unit, name in UNITS:
        if count >= unit:
            return f"{count / unit:,.0f} {name}" if count >= 1000 * unit else f"{count / unit:.4g} {name}"
    return f"{count} bytes"


def can_hold_a_block(case: Case, member: int) -> bool:
    return case.room_bytes[member] >= case.chain.least_held()


def could_hold(case: Case, heads: Sequence[int]) -> bool:
    """Whether memory suffices with one of `heads` as head: certain for equal blocks, else only not ruled out."""
    return any(_could_hold_with(case, head) for head in heads)


def _could_hold_with(case: Case, head: int) -> bool:
    chain, room = case.chain, case.room(head, True)
    if room < chain.least_held():
        return False
    others = sorted((case.room_bytes[m] for m in range(len(case.members)) if m != head), reverse=True)
    return chain.could_fill([room, *others[: chain.atoms - 1]])


def shortage(case: Case, members: Sequence[int], heads: Sequence[int]) -> Shortage:
    """Why these members, all taking part, can't hold the model when the head has to be one of `heads`."""
    return too_small(case, members, heads) or _sum_short(case, members)


def too_small(case: Case, members: Sequence[int], heads: Sequence[int]) -> Shortage | None:
    """Who can't hold one block, or, if nobody of `heads` could hold the head, the one that comes nearest."""
    least = case.chain.least_held()
    small = [member for member in members if not can_hold_a_block(case, member)]
    if small:
        worst = min(small, key=lambda member: case.room_bytes[member])
        return _lacks(case, worst, least - case.room_bytes[worst], "one block")
    if all(case.room(head, True) < least for head in heads):
        best = max(heads, key=lambda head: case.room_bytes[head])
        return _lacks(case, best, least - case.room(best, True), "the head and one block")
    return None


def _lacks(case: Case, member: int, missing: int, part: str) -> Shortage:
    name, memory = case.members[member].name, case.members[member].memory_bytes
    needs = f"{part} needs {size((memory or 0) + missing)}" + (", reserve included" if _occupied(case) else "")
    if memory is None:
        return Shortage(f"{needs}, and {name} has not measured its memory", name, missing)
    return Shortage(f"{needs}, and {name} offers {size(memory)}: {size(missing)} short", name, missing)


def _sum_short(case: Case, members: Sequence[int]) -> Shortage:
    """The sum's shortfall; where only whole blocks don't pack, the bytes of a block."""
    offered = sum(case.members[member].memory_bytes or 0 for member in members)
    needed = case.chain.held[-1] + case.problem.model.head_held_bytes + len(members) * _occupied(case)
    least = min(members, key=lambda member: (case.members[member].memory_bytes or 0, member))
    name = case.members[least].name
    sums = f"the model needs {size(needed)} at this context and concurrency, the {len(members)} members"
    if len(members) == 1:
        sums = f"the model needs {size(needed)} at this context and concurrency, {name}"
    if needed > offered:
        verb = "offers" if len(members) == 1 else "offer"
        return Shortage(f"{sums} {verb} {size(offered)}: {size(needed - offered)} short", name, needed - offered)
    missing = case.chain.unplaced_bytes([case.room_bytes[member] for member in members])
    return Shortage(f"{sums} offer {size(offered)}, but whole blocks don't pack into it", name, missing)


def _occupied(case: Case) -> int:
    return case.problem.reserve_bytes + case.problem.prefill_peak_bytes


def overfull(case: Case, layout: Layout) -> Shortage | None:
    """Who is given more than it can hold, the worst of them, for divisions that don't look at limits."""
    over = []
    for place, (member, (start, end)) in enumerate(zip(layout.order, layout.spans(), strict=True)):
        held = case.chain.held[end] - case.chain.held[start]
        over.append((held - case.room(member, place == 0), member, case.chain.cuts[end] - case.chain.cuts[start]))
    missing, member, blocks = max(over, key=lambda one: (one[0], -one[1]))
    if missing <= 0:
        return None
    return _lacks(case, member, missing, f"its share of {blocks} blocks")
