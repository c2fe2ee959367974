"""Which links stand, as both ends tell it, which pairs can't exchange frames, and who is to blame. Pure."""

from collections import Counter
from collections.abc import Collection, Sequence

from kafila_sidecar.session.coordination.effects import Json, Proposal

Edge = frozenset[str]
MOST_REMEMBERED = 64  # links that failed
UNUSABLE_S = 60.0  # the planner's price of a round trip between two that can't exchange frames: any other way is better


class Mesh:
    """The host's view. A link stands when one end said so and neither said later that it is down."""

    def __init__(self) -> None:
        self._up: dict[Edge, Json] = {}
        self._down: set[tuple[str, str]] = set()  # who says it, of its link to whom
        self._cannot: set[tuple[str, str]] = set()  # who can't reach whom, though the plan needs the link
        self._failed: list[Edge] = []  # for which somebody was set aside
        self._apart: set[Edge] = set()  # can't exchange frames, until their link stands again
        self._barred: set[Edge] = set()  # must not, since one of them says that the other breaks the rules

    def keep(self, members: Collection[str]) -> None:
        """The membership log's members now."""
        kept = set(members)
        self._up = {edge: link for edge, link in self._up.items() if edge <= kept}
        self._down = {pair for pair in self._down if kept.issuperset(pair)}
        self._cannot = {pair for pair in self._cannot if kept.issuperset(pair)}
        self._apart = {edge for edge in self._apart if edge <= kept}
        self._barred = {edge for edge in self._barred if edge <= kept}

    def linked(self, member: str, peer: str, path: str, rtt_s: float, bytes_per_s: float = 0.0) -> None:
        """An end says that the link stands. bytes_per_s: that come there from the peer; 0: not known."""
        edge = frozenset((member, peer))
        speeds = _sent_by(member, self._up.get(edge, {}), path)
        if bytes_per_s:
            speeds[peer] = bytes_per_s
        known = {"between": sorted(edge), "rtt_s": rtt_s, "path": path}
        self._up[edge] = {**known, "bytes_per_s": speeds} if speeds else known
        self._down.discard((member, peer))
        self._cannot.discard((member, peer))
        if edge in self._standing:
            self._apart.discard(edge)

    def unlinked(self, member: str, peer: str, *, broken: bool = True) -> None:
        """An end says that it is down; `broken`: though it should stand."""
        self._down.add((member, peer))
        if broken:
            self._cannot.add((member, peer))

    def cannot_reach(self, member: str, peer: str) -> bool:
        """Whether this end says so, and has not said otherwise since."""
        return (member, peer) in self._cannot

    def are_parted(self, edge: Edge) -> bool:
        """Whether both ends say so: an end whose link has come up since says it no more."""
        one, other = edge
        return self.cannot_reach(one, other) and self.cannot_reach(other, one)

    def moved(self, member: str) -> None:
        """It can be reached elsewhere than before: of links that don't stand nothing is known any more."""
        standing = self._standing
        self._up = {edge: link for edge, link in self._up.items() if member not in edge or edge in standing}

    def part(self, edge: Edge) -> None:
        """The two can't exchange frames by any path, until both say that their link stands."""
        one, other = sorted(edge)
        self._down |= {(one, other), (other, one)}
        self._cannot |= {(one, other), (other, one)}
        self._apart.add(edge)

    def bar(self, edge: Edge) -> None:
        """The two must not be neighbours any more, whether or not their link stands."""
        self._barred.add(edge)

    def is_apart(self, edge: Edge) -> bool:
        """Whether the two are no neighbours for the next plan."""
        return edge in self._apart or edge in self._barred

    def cut_off(self, edge: Edge, members: Sequence[str], *, host: str) -> str:
        """Which of two that can't exchange frames most of the others can't reach either; of both, who joined last.

        Empty when most reach both, so that it is the pair's fault; and never the host.
        """
        thirds = [member for member in members if member not in edge]
        bad = [one for one in members if one in edge and one != host and self._is_cut_off(one, thirds)]
        return bad[-1] if bad else ""

    def _is_cut_off(self, one: str, thirds: Sequence[str]) -> bool:
        cannot = sum((third, one) in self._cannot for third in thirds)
        can = sum(frozenset((third, one)) in self._standing for third in thirds)
        return cannot > can

    def entries(self, members: Collection[str]) -> list[Json]:
        """The planner's "edges" among these members, in the order of names: also of direct links that were closed since
        no plan needed them any more, as they were. The planner's guess instead could make them look better than they
        are, again after each plan that does without them."""
        kept = set(members)
        apart = {edge: _unusable(edge) for edge in self._apart | self._barred}
        broken, standing = {frozenset(pair) for pair in self._cannot}, self._standing
        known = (edge for edge, link in self._up.items() if edge in standing or link["path"] == "direct")
        edges = {**{edge: self._up[edge] for edge in known if edge not in broken}, **apart}
        return [edges[edge] for edge in sorted(edges, key=sorted) if edge <= kept]

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
        down = {frozenset(pair) for pair in self._down}
        return self._up.keys() - down


def _sent_by(member: str, known: Json, path: str) -> dict[str, float]:
    """How quickly bytes of that end come to the other one, if that told it of the same path."""
    speeds = known.get("bytes_per_s", {}) if known.get("path") == path else {}
    return {name: speed for name, speed in speeds.items() if name == member}


def _unusable(edge: Edge) -> Json:
    return {"between": sorted(edge), "rtt_s": UNUSABLE_S, "path": "relay"}
