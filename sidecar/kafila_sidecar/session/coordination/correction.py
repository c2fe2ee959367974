"""Better plans than the present one: by what its stages really take, as each member tells it of itself, and by what has
changed since it was made, such as a newcomer or a better path. When one is taken, `adoption` says.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from kafila_planner import BadInput, member_from_json, member_to_json, problem_from_json
from kafila_planner.correction import Replan, Slowness, better_plan, slowed
from kafila_sidecar.session.coordination.effects import Json, Proposal

REQUESTS = 5  # whose medians count; and how often the plan is looked at again
SHORTEST_ANSWER_TOKENS = 8  # below that a median of decode steps says little


@dataclass(frozen=True, slots=True)
class AsPlanned:
    """How many times as long as planned a stage took: for one sequence alone, and for several in a run; None: neither
    was seen."""

    alone: float | None
    shared: float | None


class Served:
    """How one member's stage of one epoch did."""

    def __init__(self) -> None:
        self._epoch = 0
        self._alone, self._shared = deque[float](maxlen=REQUESTS), deque[float](maxlen=REQUESTS)
        self._requests = 0

    def add(self, trace: Mapping[str, Any], member: str, predicted: Callable[[int], float | None]) -> AsPlanned | None:
        """Takes a trace record; the medians after every `REQUESTS` of them, else None.

        predicted: seconds of a run of so many sequences in the member's stage.
        """
        if trace.get("output_tokens", 0) < SHORTEST_ANSWER_TOKENS:
            return None
        if trace.get("epoch") != self._epoch:
            self._epoch, self._requests = int(trace.get("epoch", 0)), 0
            self._alone.clear()
            self._shared.clear()
        for stage in (one for one in trace.get("stages", []) if one["member"] == member):
            if took_s := stage["measured_s"]:
                _add(self._alone, took_s, predicted(1))
            if took_s := stage.get("shared_s", 0.0):
                _add(self._shared, took_s, predicted(stage.get("shared_rows", 0)))
        self._requests += 1
        return None if self._requests % REQUESTS else AsPlanned(_median(self._alone), _median(self._shared))


def _add(ratios: deque[float], took_s: float, predicted_s: float | None) -> None:
    if predicted_s:
        ratios.append(took_s / predicted_s)


def _median(ratios: Collection[float]) -> float | None:
    return median(ratios) if ratios else None


def slower_entry(entry: Json, slowness: Slowness) -> Json:
    """A member's entry for the planner, of a machine that takes so many times as long."""
    costs = member_to_json(slowed(member_from_json(entry), slowness))
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
