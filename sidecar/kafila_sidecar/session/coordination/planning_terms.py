"""What a session was opened with, as the planner reads it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafila_sidecar.session.coordination.effects import Json

ALL = "all"  # in `require`: everybody
HOLDS = "holds"  # of a member's entry: what it has of the model already


@dataclass(frozen=True, slots=True)
class PlanningTerms:
    """Of one session."""

    members_wanted: int  # 0: until somebody says start
    model: Json  # the planner's "model" entry
    context_tokens: int
    concurrency: int
    strategy: str = "kafila"
    objective: str = ""
    require: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)  # reserve_bytes, prefill_peak_bytes

    def fields(self, names: Sequence[str]) -> Json:
        """The part of the planner's input that they give, when these members are planned with."""
        objective = {"objective": self.objective} if self.objective else {}
        return {
            "model": self.model,
            "context_tokens": self.context_tokens,
            "concurrency": self.concurrency,
            "strategy": self.strategy or "kafila",
            "require": list(names) if ALL in self.require else [name for name in self.require if name in names],
            "exclude": [name for name in self.exclude if name in names],
            **self.extra,
            **objective,
        }


def is_alike(one: Json, other: Json) -> bool:
    """Whether two problems differ in nothing but what members hold: no reason to plan again, since that alone makes no
    plan better than one that stands."""
    return _bare(one) == _bare(other)


def _bare(problem: Json) -> Json:
    members = [{key: value for key, value in one.items() if key != HOLDS} for one in problem.get("members", ())]
    return {**problem, "members": members}
