"""What the links of a session turned out to be, beside what the members' networks had promised. Pure."""

from dataclasses import dataclass

from kafila_planner import Problem
from kafila_planner.model.reach import classify, is_direct
from kafila_planner.model.types import Path


@dataclass(frozen=True, slots=True)
class FormedLink:
    """A link as one of its ends reported it. `path`: "direct" or "relay", as it is now; times as it was made."""

    path: str
    rtt_s: float
    punch_s: float  # until a path stood
    handshake_s: float  # from then until both ends knew that the link stands

    @property
    def formed_s(self) -> float:
        return self.punch_s + self.handshake_s


def predicted_path(problem: Problem, one: str, other: str) -> str:
    """By the pair rule and nothing else: "direct" or "relay"; empty for who is not in the planner's input."""
    members = {member.name: member for member in problem.members}
    if not members.keys() >= {one, other}:
        return ""
    a, b = (classify(members[name], problem.objective) for name in (one, other))
    return (Path.DIRECT if is_direct(a, b) else Path.RELAY).value
