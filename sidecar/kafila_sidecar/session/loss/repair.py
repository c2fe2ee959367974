"""What a new plan means for those who wait for it, in one sentence: who takes over what, and about how long. Pure."""

from collections.abc import Iterator, Mapping

from kafila_planner import PlannedStage, Toll, tolls_of
from kafila_sidecar.session.coordination.effects import Proposal

WENT = {
    "lost": ("was lost", "were lost"),
    "left": ("has left", "have left"),
    "removed": ("was removed", "were removed"),
}
"""Of one, and of several, by the log's reasons."""


def in_words(before: Proposal | None, after: Proposal, gone: Mapping[str, str]) -> str:
    """ "b was lost: c takes over blocks 6 to 17 (1.2 GB, about 40 s)", from the plan that stood and the one that comes;
    empty where nothing stood, or nothing moves. `gone`: who is no member now, and by which of the log's reasons."""
    if before is None:
        return ""
    moves = list(_moves(before, after))
    if not moves:
        return ""
    went = {name: gone[name] for name in before.plan.order if name in gone}
    return f"{_why(went) if went else 'there is another plan'}: {', '.join(moves)}"


def _why(went: Mapping[str, str]) -> str:
    """Together those who went for the same reason."""
    by_reason = {reason: [name for name, its in went.items() if its == reason] for reason in went.values()}
    return " and ".join(f"{' and '.join(names)} {WENT[how][len(names) > 1]}" for how, names in by_reason.items())


def _moves(before: Proposal, after: Proposal) -> Iterator[str]:
    """Of each member that gets blocks, or the head, that it did not have."""
    for told in tolls_of(after.problem, after.plan):
        stage, had = after.stage_of(told.member), before.stage_of(told.member)
        assert stage is not None
        new = [_blocks(start, end) for start, end in _new(had, stage)]
        if told.member == after.head != before.head:
            new.append("the head")
        if new:
            yield f"{told.member} takes over {' and '.join(new)}{_cost(told.toll)}"


def _blocks(start: int, end: int) -> str:
    return f"blocks {start} to {end - 1}" if end - start > 1 else f"block {start}"


def _new(had: PlannedStage | None, stage: PlannedStage) -> list[tuple[int, int]]:
    """Blocks of the stage that are not of the one before."""
    if had is None or had.end <= stage.start or stage.end <= had.start:
        return [(stage.start, stage.end)]
    parts = [(stage.start, had.start), (had.end, stage.end)]
    return [(start, end) for start, end in parts if start < end]


def _cost(toll: Toll) -> str:
    """What comes over the network, or else from the disk; nothing where all of it is in memory."""
    if not toll.load_bytes:
        return ""
    where = size(toll.fetch_bytes) if toll.fetch_bytes else f"{size(toll.load_bytes)} on its disk"
    return f" ({where}, about {seconds(toll.seconds)})"


def size(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e9:.1f} GB" if count >= 5e7 else f"{count / 1e6:.1f} MB"


def seconds(value: float) -> str:
    """A time for people who wait."""
    return f"{max(1, round(value))} s" if value < 120 else f"{round(value / 60)} minutes"
