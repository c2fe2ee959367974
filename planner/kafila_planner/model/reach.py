"""Which pairs reach each other directly, and what the pair costs.

The pair rule (see docs/planner.md): both mappings endpoint-independent → direct; one endpoint-dependent → direct if
the other side's filtering is not address-and-port-dependent; both → relay. Said in the paper's three classes that is
its Table III, so one table serves both; only who counts as permissive differs.
"""

from dataclasses import dataclass
from enum import StrEnum

from kafila_planner.model.types import Filtering, Mapping, MeasuredEdge, Node, Objective, Path

PICOSECONDS = 10**12
"""Round trips are added as whole picoseconds, so that equal rings are equal whatever the order of addition."""


class Reach(StrEnum):
    """A member's class for prediction."""

    PERMISSIVE = "permissive"
    ORDINARY = "ordinary"
    RESTRICTIVE = "restrictive"
    ISOLATED = "isolated"


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Matrices over members. `rtt_ps` is None where it can't be known, `apart_ps` is |r_A − r_B| (0 if unknown),
    `bytes_per_s` what one sends to another (None if unknown).

    A member is direct with itself and costs nothing, so a ring of one has no network.

    `reach` has the classes if nothing but they decides the paths, else None: a measured edge stands above its class.
    """

    direct: tuple[tuple[bool, ...], ...]
    rtt_ps: tuple[tuple[int | None, ...], ...]
    apart_ps: tuple[tuple[int, ...], ...]
    bytes_per_s: tuple[tuple[float | None, ...], ...]
    reach: tuple[Reach, ...] | None

    @property
    def priced(self) -> bool:
        """Whether every pair's round trip is known."""
        return all(rtt is not None for row in self.rtt_ps for rtt in row)

    def with_known_trips(self) -> list[int]:
        """Members of whom every pair's round trip is known: all but those who lack the most, one after the other."""
        left = list(range(len(self.rtt_ps)))
        while any(lacks := [sum(self.rtt_ps[a][b] is None for b in left) for a in left]):
            del left[max(range(len(left)), key=lambda place: (lacks[place], place))]
        return left

    def weights(self) -> list[list[int]]:
        """What ordering minimises: round trips, then ring separation; relays where a round trip is missing.

        Round trip and separation in one whole number, so that its sums compare as the pair's would.
        """
        if not self.priced:
            return [[int(not direct) for direct in row] for row in self.direct]
        above = self.rtt_unit()
        return [
            [(rtt or 0) * above + apart for rtt, apart in zip(rtts, aparts, strict=True)]
            for rtts, aparts in zip(self.rtt_ps, self.apart_ps, strict=True)
        ]

    def rtt_unit(self) -> int:
        """A picosecond of round trip in a priced weight: more than all separations together."""
        return 1 + sum(map(sum, self.apart_ps))

    def path(self, a: int, b: int) -> Path:
        return Path.DIRECT if self.direct[a][b] else Path.RELAY


def classify(member: Node, objective: Objective) -> Reach:
    """The paper wants endpoint-independent filtering of a permissive member; any but address-and-port-dependent does.

    Unknown filtering counts as the strictest, unknown mapping and a blocked network as isolated.
    """
    if not member.udp or member.mapping is Mapping.UNKNOWN:
        return Reach.ISOLATED
    if member.mapping is not Mapping.ENDPOINT_INDEPENDENT:
        return Reach.RESTRICTIVE
    open_to = {Filtering.ENDPOINT_INDEPENDENT}
    if objective is not Objective.PAPER:
        open_to.add(Filtering.ADDRESS_DEPENDENT)
    return Reach.PERMISSIVE if member.filtering in open_to else Reach.ORDINARY


def is_direct(a: Reach, b: Reach) -> bool:
    """The paper's Table III, column "rule predicts"."""
    if Reach.ISOLATED in (a, b):
        return False
    return Reach.PERMISSIVE in (a, b) or a is b is Reach.ORDINARY


def round_trips_of(members: tuple[Node, ...], edges: tuple[MeasuredEdge, ...], objective: Objective) -> RoundTrips:
    """Every pair's path and round trip: predicted, or measured where an edge says so."""
    reach = tuple(classify(member, objective) for member in members)
    measured = {edge.between: edge for edge in edges}
    index = range(len(members))
    pair = [[measured.get((min(a.name, b.name), max(a.name, b.name))) for b in members] for a in members]
    direct = tuple(tuple(a == b or _is_direct(pair[a][b], reach[a], reach[b]) for b in index) for a in index)
    names = {member.name for member in members}
    overruled = any(edge.path is not None and names >= set(edge.between) for edge in edges)
    return RoundTrips(
        direct=direct,
        rtt_ps=tuple(tuple(_rtt_ps(pair[a][b], members[a], members[b], direct[a][b]) for b in index) for a in index),
        apart_ps=tuple(tuple(_apart_ps(members[a], members[b]) for b in index) for a in index),
        bytes_per_s=tuple(tuple(_sends(pair[a][b], members[a]) for b in index) for a in index),
        reach=None if overruled else reach,
    )


def _is_direct(edge: MeasuredEdge | None, a: Reach, b: Reach) -> bool:
    if edge is not None and edge.path is not None:
        return edge.path is Path.DIRECT
    return is_direct(a, b)


def _rtt_ps(edge: MeasuredEdge | None, a: Node, b: Node, direct: bool) -> int | None:
    """r_A + r_B by way of the rendezvous; |r_A − r_B|, the triangle inequality's lower bound, where direct."""
    if a is b:
        return 0
    if edge is not None and edge.rtt_s is not None:
        return round(edge.rtt_s * PICOSECONDS)
    if a.rtt_s is None or b.rtt_s is None:
        return None
    one, other = round(a.rtt_s * PICOSECONDS), round(b.rtt_s * PICOSECONDS)
    return abs(one - other) if direct else one + other


def _sends(edge: MeasuredEdge | None, sender: Node) -> float | None:
    return None if edge is None else edge.bytes_per_s[edge.between.index(sender.name)]


def _apart_ps(a: Node, b: Node) -> int:
    if a.rtt_s is None or b.rtt_s is None:
        return 0
    return abs(round(a.rtt_s * PICOSECONDS) - round(b.rtt_s * PICOSECONDS))
