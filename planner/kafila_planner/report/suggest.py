"""What would be admitted instead: less context, fewer users, a quantised checkpoint, one machine more or less."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from kafila_planner.admission import Shortage, can_hold_a_block, size
from kafila_planner.model.case import case_of
from kafila_planner.model.types import Model, Objective, Problem
from kafila_planner.settle import Settled, settle, takes_all

CONTEXT_STEP_TOKENS = 256

QUANTISED = ((8, 17 / 32), (4, 9 / 32))
"""Bits, and size relative to 16 bits: MLX keeps a 16-bit scale and bias for each 64 weights."""

GUESSES = {bits: f"a checkpoint quantised to {bits} bits, if this one has 16" for bits, _ in QUANTISED}
"""What is said of it, for whoever knows more of the checkpoint to say better."""

SMALLER = "a smaller model"

MACHINE_STEP_BYTES = 10**8


def suggestions(problem: Problem, short: Shortage) -> tuple[str, ...]:
    """Each alone is enough. Ends with a smaller model if nothing else is."""
    found = [
        *_less_context(problem),
        *_fewer_users(problem),
        *_quantised(problem),
        *_one_more(problem),
        *_one_less(problem, short),
    ]
    return tuple(found or [SMALLER])


def fits(problem: Problem) -> bool:
    """Whether there is a division at all. Nothing here depends on the network, so the ring is the cheapest to find."""
    case = case_of(problem)
    unable = {name for member, name in enumerate(case.names) if not can_hold_a_block(case, member)}
    if not takes_all(problem):
        problem = replace(problem, exclude=problem.exclude | (unable - problem.require))
    if problem.exclude >= {member.name for member in problem.members}:
        return False
    members = tuple(replace(member, rtt_s=None) for member in problem.members)
    return isinstance(settle(replace(problem, members=members, edges=(), objective=Objective.PAPER)), Settled)


def _less_context(problem: Problem) -> Iterator[str]:
    steps = (problem.context_tokens - 1) // CONTEXT_STEP_TOKENS
    most = _largest(steps, lambda n: fits(replace(problem, context_tokens=n * CONTEXT_STEP_TOKENS)))
    if most:
        yield f"a context of {most * CONTEXT_STEP_TOKENS} tokens instead of {problem.context_tokens}"


def _fewer_users(problem: Problem) -> Iterator[str]:
    most = _largest(problem.concurrency - 1, lambda n: fits(replace(problem, concurrency=n)))
    if most:
        yield f"a concurrency of {most} instead of {problem.concurrency}"


def _quantised(problem: Problem) -> Iterator[str]:
    for bits, share in QUANTISED:
        if fits(replace(problem, model=_scaled(problem.model, share))):
            yield GUESSES[bits]
            return


def _scaled(model: Model, share: float) -> Model:
    return replace(
        model,
        block_bytes=tuple(max(1, int(size_bytes * share)) for size_bytes in model.block_bytes),
        embed_bytes=int(model.embed_bytes * share),
        unembed_bytes=int(model.unembed_bytes * share),
    )


def _one_more(problem: Problem) -> Iterator[str]:
    """Another like the one with the most memory, which lends as little as will do."""
    name = max(member.name for member in problem.members) + "+"
    like = max(problem.members, key=lambda member: (member.memory_bytes or 0, member.name))

    def fits_with(steps: int) -> bool:
        more = replace(like, name=name, memory_bytes=steps * MACHINE_STEP_BYTES)
        return fits(replace(problem, members=(*problem.members, more)))

    case = case_of(problem)
    enough = case.chain.held[-1] + problem.model.head_held_bytes + problem.reserve_bytes + problem.prefill_peak_bytes
    steps = enough // MACHINE_STEP_BYTES + 1
    if fits_with(steps):
        too_few = _largest(steps, lambda n: not fits_with(n))
        yield f"one more machine that lends {size((too_few + 1) * MACHINE_STEP_BYTES)}"


def _one_less(problem: Problem, short: Shortage) -> Iterator[str]:
    """Leaving out who is too small, where everybody is forced in or this one is required."""
    if len(problem.members) - len(problem.exclude) < 2:
        return
    less = replace(problem, exclude=problem.exclude | {short.undersized}, require=problem.require - {short.undersized})
    if fits(less):
        yield f"going on without {short.undersized}"


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest n in 1..most that holds, if all below it hold too; 0 if not even 1 does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
