"""What a stage costs: the paper's Eq. 2, at any batch size, and the tier that the measurements allow."""

from dataclasses import dataclass

from kafila_planner.model.types import Model, Node, StepTimes, Tier


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds of one step at one batch size, one entry a member: c = fixed + bytes read · per_byte + [head] · head.

    `share`: the sequences that a step has on the average; see `model/runs.py`. In the arithmetic tier per_byte is
    relative and the other two are 0.
    """

    batch: int
    share: float
    fixed: tuple[float, ...]
    per_byte: tuple[float, ...]
    head: tuple[float, ...]


def tier_of(members: tuple[Node, ...]) -> tuple[Tier, str]:
    """The best tier in which every member is priced, and why it is no better one."""
    unpriced = [member.name for member in members if not is_priced(member)]
    if not unpriced:
        return Tier.MEASURED, ""
    why = f"not measured: the bandwidth or overhead of {', '.join(unpriced)}"
    unrated = [member.name for member in members if member.flops_per_s is None]
    if not unrated:
        return Tier.ARITHMETIC, why
    return Tier.WORKING_SET, f"{why}; the arithmetic throughput of {', '.join(unrated)}"


def is_priced(member: Node) -> bool:
    speed = member.bandwidth_bytes_per_s is not None or bool(member.block_s)
    return speed and member.overhead_s is not None


def prices_at(batch: int, share: float, members: tuple[Node, ...], model: Model) -> Prices:
    """Every member's prices in the measured tier."""
    mean_block = sum(model.block_read_bytes) / model.blocks
    return Prices(
        batch=batch,
        share=share,
        fixed=tuple(_overhead_s(member, batch) for member in members),
        per_byte=tuple(_block_s(member, mean_block, batch) / mean_block for member in members),
        head=tuple(_head_s(member, mean_block, model.head_read_bytes, batch) for member in members),
    )


def relative_prices(members: tuple[Node, ...], model: Model) -> Prices:
    """The arithmetic tier: the fastest member's mean block costs 1. No head term, since arithmetic prices no reads."""
    mean_block = sum(model.block_read_bytes) / model.blocks
    fastest = max(member.flops_per_s or 0.0 for member in members)
    per_byte = tuple(fastest / (member.flops_per_s or fastest) / mean_block for member in members)
    nothing = (0.0,) * len(members)
    return Prices(batch=1, share=1.0, fixed=nothing, per_byte=per_byte, head=nothing)


def batch_sizes(members: tuple[Node, ...], concurrency: int, most: int | None) -> tuple[int, ...]:
    """The batch sizes worth trying: all up to 64, doubling from there. 1 alone where nobody gains by batching.

    most: None where no engine sets a bound.
    """
    if not any(gains_by_batching(member) or _sizes(member.head_s) - {1} for member in members):
        return (1,)
    concurrency = concurrency if most is None else min(concurrency, most)
    sizes = set(range(1, min(concurrency, 64) + 1)) | {concurrency}
    doubled = 128
    while doubled < concurrency:
        sizes.add(doubled)
        doubled *= 2
    return tuple(sorted(sizes))


def gains_by_batching(member: Node) -> bool:
    """Whether a block's time is known at more than one batch size; a bandwidth is one at batch 1."""
    alone = {1} if member.bandwidth_bytes_per_s is not None else set()
    return len(_sizes(member.block_s) | alone) > 1


def _sizes(steps: StepTimes) -> set[int]:
    return {size for size, _ in steps}


def step_s(steps: StepTimes, batch: int) -> float:
    """Seconds at a batch size: linear between measured sizes, by the last slope beyond them, flat below the first.

    One measured size says nothing about batching: the batch is then run one by one.
    """
    if len(steps) == 1:
        size, seconds = steps[0]
        return seconds * max(1.0, batch / size)
    if batch <= steps[0][0]:
        return steps[0][1]
    upper = next((place for place, (size, _) in enumerate(steps) if size >= batch), len(steps) - 1)
    (size_0, seconds_0), (size_1, seconds_1) = steps[upper - 1], steps[upper]
    if batch > size_1:
        return seconds_1 + max(0.0, seconds_1 - seconds_0) / (size_1 - size_0) * (batch - size_1)
    along = (batch - size_0) / (size_1 - size_0)
    return seconds_0 * (1 - along) + seconds_1 * along  # so that at a measured size it is the measured time


def _overhead_s(member: Node, batch: int) -> float:
    overhead = member.overhead_s or 0.0
    return (overhead if gains_by_batching(member) else overhead * batch) + batch * (member.handling_s or 0.0)


def _block_s(member: Node, mean_block: float, batch: int) -> float:
    """Seconds of a mean block. Measured step times stand above the bandwidth, which fills in for batch 1."""
    steps = member.block_s
    if member.bandwidth_bytes_per_s is not None and (not steps or steps[0][0] > 1):
        steps = ((1, mean_block / member.bandwidth_bytes_per_s), *steps)
    return step_s(steps, batch)


def _head_s(member: Node, mean_block: float, head_read_bytes: int, batch: int) -> float:
    """Seconds of norm and unembedding; the bandwidth behind it is that of a mean block where none is given."""
    steps = member.head_s
    if not steps or steps[0][0] > 1:
        bandwidth = member.bandwidth_bytes_per_s or mean_block / _block_s(member, mean_block, 1)
        steps = ((1, head_read_bytes / bandwidth), *steps)
    return step_s(steps, batch) + batch * (member.head_handling_s or 0.0)


def handling_s(member: Node, is_head: bool) -> float:
    """Of a stage's cost at batch 1, what is not the model's."""
    return (member.handling_s or 0.0) + (member.head_handling_s or 0.0 if is_head else 0.0)


def chunk_s(member: Node, mean_block: float, tokens: int) -> float:
    """Seconds of a mean block for so many tokens of a prompt; a decode step is the shortest."""
    steps = member.prefill_s
    if steps[0][0] > 1:
        steps = ((1, _block_s(member, mean_block, 1)), *steps)
    return step_s(steps, tokens)
