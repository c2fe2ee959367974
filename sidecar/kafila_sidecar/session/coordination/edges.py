"""What the links of a session turned out to be, beside what the members' networks had promised. Pure."""

from dataclasses import dataclass

from kafila_planner.model.reach import classify, is_direct
from kafila_planner.model.types import Filtering, Mapping, Node, Objective, Path
from kafila_sidecar.session.coordination.effects import Json


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


def predicted_path(problem: Json, one: str, other: str) -> str:
    """By the pair rule and nothing else: "direct" or "relay"; empty for who is not in the planner's input."""
    objective = Objective(problem.get("objective") or Objective.LATENCY)
    entries = {str(member["name"]): member for member in problem["members"]}
    if not entries.keys() >= {one, other}:
        return ""
    a, b = (classify(_node(entries[name]), objective) for name in (one, other))
    return (Path.DIRECT if is_direct(a, b) else Path.RELAY).value


def _node(entry: Json) -> Node:
    return Node(
        name=str(entry["name"]),
        mapping=Mapping(entry.get("mapping") or Mapping.UNKNOWN),
        filtering=Filtering(entry.get("filtering") or Filtering.UNKNOWN),
        udp=entry.get("udp") is not False,
    )
