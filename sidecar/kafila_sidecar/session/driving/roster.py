"""What one member knows of the others, for people: what each does, which links stand, the last trace."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from kafila_proto import ring_pb2
from kafila_sidecar.session.coordination.edges import FormedLink
from kafila_sidecar.session.coordination.messages import CHOOSING, Doing


@dataclass(slots=True)
class MemberView:
    """One member as it last showed itself."""

    doing: str = "measuring"
    device: str = ""
    kafila: str = ""  # the version of its package
    usable_memory_bytes: int = 0
    fetched_bytes: int = 0
    total_bytes: int = 0
    aside: str = ""  # why it takes no part in the plan, if it is set aside
    rate_bytes_per_s: float = 0.0
    waits_for: str = ""
    entries: int = 0  # how often it told what it measured, and holds

    @property
    def shown(self) -> tuple[str | int | float, ...]:
        """All of it, as it is now."""
        return _ALL(self)


_ALL: Callable[[MemberView], tuple[str | int | float, ...]] = attrgetter(*(one.name for one in fields(MemberView)))


@dataclass(slots=True)
class DecodeTimes:
    """What decode steps took in one epoch, in seconds: of each stage by its member, of each hop by its two, as the
    latest answer told it that had such steps. An answer of one token has none, nor has a text that was embedded."""

    epoch: int = 0
    stages: dict[str, float] = field(default_factory=dict)
    hops: dict[tuple[str, str], float] = field(default_factory=dict)

    def took(self, trace: Mapping[str, Any], among: Container[str]) -> None:
        """The head's record of a request, which counts for these members alone."""
        epoch = trace.get("epoch", 0)
        if epoch != self.epoch:
            self.epoch, self.stages, self.hops = epoch, {}, {}
        for one in trace.get("stages", ()):
            if one["measured_s"] and one["member"] in among:
                self.stages[one["member"]] = one["measured_s"]
        for one in trace.get("hops", ()):
            if one["measured_s"] and one["from"] in among and one["to"] in among:
                self.hops[one["from"], one["to"]] = one["measured_s"]


class Roster:
    """Members in the order of joining."""

    def __init__(self, names: Iterable[str]) -> None:
        self._seen: dict[str, MemberView] = {name: MemberView() for name in names}
        self.trace: Mapping[str, Any] = {}
        self.steps = DecodeTimes()
        self.busy: ring_pb2.Busy | None = None  # as the head told it last
        self.edges: dict[frozenset[str], FormedLink] = {}  # the links that stand
        self.gone: dict[str, str] = {}  # who was a member and is none now, and by which of the log's reasons
        self.repair = ""  # who takes over what by the latest plan, in a sentence; empty where nothing moved

    @property
    def seen(self) -> Mapping[str, MemberView]:
        return self._seen

    def members(self, names: Sequence[str]) -> None:
        """The membership log's members now."""
        self._seen = {name: self._seen.get(name) or MemberView() for name in names}
        self.gone = {name: why for name, why in self.gone.items() if name not in self._seen}
        self.edges = {pair: edge for pair, edge in self.edges.items() if pair <= self._seen.keys()}

    def measured_member(self, name: str, device: str, usable_memory_bytes: int, kafila: str) -> None:
        """A member measured itself."""
        seen = self._seen.setdefault(name, MemberView())
        seen.device, seen.usable_memory_bytes, seen.kafila = device, usable_memory_bytes, kafila
        seen.entries += 1
        if seen.doing == "measuring":
            seen.doing = "waiting"

    def progressed(self, name: str, said: Doing) -> None:
        """A member fetches or loads, or is ready."""
        seen = self._seen.setdefault(name, MemberView())
        seen.doing, seen.rate_bytes_per_s, seen.waits_for = said.doing, said.rate_bytes_per_s, said.waits_for
        if said.total_bytes:
            seen.fetched_bytes, seen.total_bytes = said.fetched_bytes, said.total_bytes

    def does(self, name: str, what: str) -> bool:
        """Whether this is what a member said last that it does."""
        return name in self._seen and self._seen[name].doing == what

    def put_aside(self, name: str, why: str) -> None:
        """A member takes no part in the plan."""
        if name in self._seen:
            self._seen[name].aside = why

    def planned(self) -> None:
        """There is a new plan; the host says anew without whom, and whether somebody chooses."""
        for view in self._seen.values():
            view.aside = ""
            view.doing = "waiting" if view.doing == CHOOSING else view.doing

    def linked(self, one: str, other: str, edge: FormedLink | None) -> None:
        """A link stands, or moved to another path; None: it is down."""
        if edge is None:
            self.edges.pop(frozenset((one, other)), None)
        elif one in self._seen and other in self._seen:
            self.edges[frozenset((one, other))] = edge

    def is_linked(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self.edges

    def measured(self, trace: Mapping[str, Any]) -> None:
        """The head's record of its latest request."""
        self.trace = trace
        self.steps.took(trace, self._seen)
