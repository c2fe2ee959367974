"""Better plans than the present one: by what its stages really take, as each member tells it of itself, and by what has
changed since it was made, such as a newcomer or a better path. When one is taken, `adoption` says.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from statistics import median
from typing import Any

from kafila_planner import BadInput, member_from_json, member_to_json, problem_from_json
from kafila_planner.correction import Replan, better_plan, slowed
from kafila_sidecar.session.coordination.effects import Json, Proposal

REQUESTS = 5  # whose medians count; and how often the plan is looked at again
SHORTEST_ANSWER_TOKENS = 8  # below that a median of decode steps says little


class Served:
    """What the stages of one epoch took, by member."""

    def __init__(self) -> None:
        self._epoch = 0
        self._seconds: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=REQUESTS))
        self._requests = 0

    def add(self, trace: Mapping[str, Any], members: Collection[str]) -> Mapping[str, float] | None:
        """Takes a trace record; the medians by member in seconds after every `REQUESTS` of them, else None.

        members: who is asked about.
        """
        if trace.get("output_tokens", 0) < SHORTEST_ANSWER_TOKENS:
            return None
        if trace.get("epoch") != self._epoch:
            self._epoch, self._requests = int(trace.get("epoch", 0)), 0
            self._seconds.clear()
        for stage in (one for one in trace.get("stages", []) if one["member"] in members and one["measured_s"]):
            self._seconds[stage["member"]].append(float(stage["measured_s"]))
        self._requests += 1
        if self._requests % REQUESTS:
            return None
        return {member: median(times) for member, times in self._seconds.items()}


def slower_entry(entry: Json, factor: float) -> Json:
    """A member's entry for the planner, of a machine that takes so many times as long for everything."""
    costs = member_to_json(slowed(member_from_json(entry), factor))
    return {key: costs.get(key, value) for key, value in entry.items()}


async def look_anew(proposal: Proposal, problem: Json) -> tuple[float, str]:
    """By what share of tokens a second the plan of a problem is better than the proposal's, and one sentence that says
    so; 0.0 and nothing where it is not."""
    found = await asyncio.to_thread(_better, proposal, problem)
    return (0.0, "") if found is None else (found.gain, _in_words(found))


def _better(proposal: Proposal, problem: Json) -> Replan | None:
    try:
        return better_plan(problem_from_json(problem), proposal.plan, {})
    except BadInput:
        return None


def _in_words(found: Replan) -> str:
    stages = ", ".join(f"{stage.member} {stage.end - stage.start}" for stage in found.plan.stages)
    return (
        "by who is here, how fast they are and how they are linked now, another division"
        f" ({stages} blocks) would give {found.tokens_per_s_then:.1f} instead of"
        f" {found.tokens_per_s_now:.1f} tokens/s (+{found.gain:.0%})"
    )
