"""What the links of a session turned out to be, beside what the members' networks had promised. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from kafila_planner import Problem
from kafila_planner.model.reach import classify, is_direct
from kafila_planner.model.types import Path

ANOTHER_TRIP_S, ANOTHER_TRIP = 0.001, 0.3
"""Seconds, and a part of what was planned with: links differ by less from one second to the next."""


@dataclass(frozen=True, slots=True)
class FormedLink:
    """A link as one of its ends reported it. `path`: "direct" or "relay", as it is now; times as it was made.
    `bytes_per_s`: that come to that end from the other; 0: not known."""

    path: str
    rtt_s: float
    punch_s: float  # until a path stood
    handshake_s: float  # from then until both ends knew that the link stands
    bytes_per_s: float = 0.0

    @property
    def formed_s(self) -> float:
        return self.punch_s + self.handshake_s


def planned_trips(problem: Problem, name: str) -> Mapping[str, float]:
    """Seconds by peer, of the links of that member that a plan was made with."""
    return {
        peer: edge.rtt_s
        for edge in problem.edges
        if name in edge.between and edge.rtt_s is not None
        for peer in edge.between
        if peer != name
    }


def is_another_trip(planned_s: float, now_s: float) -> bool:
    """Whether a link's round trip is worth planning with anew; 0: not known now."""
    return bool(now_s) and abs(now_s - planned_s) > max(ANOTHER_TRIP_S, ANOTHER_TRIP * planned_s)


def predicted_path(problem: Problem, one: str, other: str) -> str:
    """By the pair rule and nothing else: "direct" or "relay"; empty for who is not in the planner's input."""
    members = {member.name: member for member in problem.members}
    if not members.keys() >= {one, other}:
        return ""
    a, b = (classify(members[name], problem.objective) for name in (one, other))
    return (Path.DIRECT if is_direct(a, b) else Path.RELAY).value
