"""Which links stand, as both ends tell it, and who is to blame for those that don't. Pure."""

from collections import Counter
from collections.abc import Collection, Sequence

from kafila_sidecar.session.coordination.effects import Json, Proposal

Edge = frozenset[str]
MOST_REMEMBERED = 64  # links that failed


class Mesh:
    """The host's view. A link stands when one end said so and neither said later that it is down."""

    def __init__(self) -> None:
        self._up: dict[Edge, Json] = {}
        self._down: set[tuple[str, str]] = set()  # who says it, of its link to whom
        self._failed: list[Edge] = []  # for which somebody was set aside

    def keep(self, members: Collection[str]) -> None:
        """The membership log's members now."""
        kept = set(members)
        self._up = {edge: link for edge, link in self._up.items() if edge <= kept}
        self._down = {pair for pair in self._down if kept.issuperset(pair)}

    def linked(self, member: str, peer: str, path: str, rtt_s: float) -> None:
        """An end says that the link stands."""
        edge = frozenset((member, peer))
        self._up[edge] = {"between": sorted(edge), "rtt_s": rtt_s, "path": path}
        self._down.discard((member, peer))

    def unlinked(self, member: str, peer: str) -> None:
        """An end says that it is down."""
        self._down.add((member, peer))

    def entries(self, members: Collection[str]) -> list[Json]:
        """The planner's "edges" among these members, in the order of names."""
        kept = set(members)
        return [self._up[edge] for edge in sorted(self._standing, key=sorted) if edge <= kept]

    def missing(self, proposal: Proposal, members: Collection[str]) -> list[Edge]:
        """The plan's links among these members that don't stand."""
        kept = set(members)
        return sorted((edge for edge in proposal.edges(list(members)) - self._standing if edge <= kept), key=sorted)

    def blame(self, missing: Sequence[Edge], *, host: str, members: Sequence[str]) -> list[str]:
        """The fewest members by whose going no missing link is left, as near as counting finds them: who has most of
        them, earlier ones included, so that nobody's word drives out one neighbour after the other; of equals who
        joined last. Never the host, for whom there is the other end.
        """
        order = {name: place for place, name in enumerate(members)}
        earlier = Counter(name for edge in self._failed for name in edge)
        left, blamed = list(missing), list[str]()
        while left:
            now = Counter(name for edge in left for name in edge if name != host)
            blamed.append(max(now, key=lambda name: (now[name] + earlier[name], order.get(name, 0))))
            left = [edge for edge in left if blamed[-1] not in edge]
        self._failed = [*self._failed, *missing][-MOST_REMEMBERED:]
        return blamed

    @property
    def _standing(self) -> set[Edge]:
        return {edge for edge in self._up if not any(edge == frozenset(pair) for pair in self._down)}
