"""What goes into the planner and what comes out. Everything is frozen; every number has its unit in its name."""

from dataclasses import dataclass, field
from enum import StrEnum


class Mapping(StrEnum):
    """How a NAT maps one inner port towards several destinations (RFC 4787, section 4.1)."""

    ENDPOINT_INDEPENDENT = "endpoint-independent"
    ADDRESS_DEPENDENT = "address-dependent"
    ADDRESS_AND_PORT_DEPENDENT = "address-and-port-dependent"
    UNKNOWN = "unknown"


class Filtering(StrEnum):
    """Whose packets a NAT lets in on a mapped port (RFC 4787, section 5)."""

    ENDPOINT_INDEPENDENT = "endpoint-independent"
    ADDRESS_DEPENDENT = "address-dependent"
    ADDRESS_AND_PORT_DEPENDENT = "address-and-port-dependent"
    UNKNOWN = "unknown"


class Path(StrEnum):
    DIRECT = "direct"
    RELAY = "relay"


class Strategy(StrEnum):
    KAFILA = "kafila"
    MEMORY = "memory"
    UNIFORM = "uniform"


class Objective(StrEnum):
    PAPER = "paper"
    LATENCY = "latency"
    THROUGHPUT = "throughput"

    @classmethod
    def by_default(cls, concurrency: int) -> "Objective":
        return cls.LATENCY if concurrency == 1 else cls.THROUGHPUT


class Tier(StrEnum):
    """How well the members are measured, best first (the paper's section on admission)."""

    MEASURED = "measured"
    ARITHMETIC = "arithmetic"
    WORKING_SET = "working-set"


class OrderedBy(StrEnum):
    PRICED = "priced"
    COUNTING = "counting"


class SearchKind(StrEnum):
    EXACT = "exact"
    HEURISTIC = "heuristic"


StepTimes = tuple[tuple[int, float], ...]
"""(batch size, seconds) with batch sizes ascending; empty when not measured."""


@dataclass(frozen=True, slots=True)
class Model:
    """Sizes of a checkpoint. The tuples have one entry a block.

    `block_read_bytes` is what one decode step reads of a block: less than it holds where experts are chosen.
    `kv_fixed_bytes` is a cache whose size does not depend on the context; `kv_window_tokens` limits the other kind.
    Both are for one sequence. No cut is made between block i and i + 1 for i in `no_cut_after`. `draft_bytes` is what
    the head holds beside its part: a model that guesses, with its caches.
    """

    block_bytes: tuple[int, ...]
    block_read_bytes: tuple[int, ...]
    kv_bytes_per_token: tuple[int, ...]
    kv_fixed_bytes: tuple[int, ...]
    kv_window_tokens: tuple[int | None, ...]
    embed_bytes: int
    unembed_bytes: int
    norm_bytes: int
    tied: bool
    no_cut_after: tuple[int, ...] = ()
    draft_bytes: int = 0

    @property
    def blocks(self) -> int:
        return len(self.block_bytes)

    @property
    def head_held_bytes(self) -> int:
        """The head holds the embedding and the unembedding, once if they are one matrix, the norm, and a draft model if
        there is one."""
        matrices = max(self.embed_bytes, self.unembed_bytes) if self.tied else self.embed_bytes + self.unembed_bytes
        return matrices + self.norm_bytes + self.draft_bytes

    @property
    def head_read_bytes(self) -> int:
        """A step reads the unembedding and the norm; of the embedding it reads one row, which is nothing."""
        unembed = max(self.embed_bytes, self.unembed_bytes) if self.tied else self.unembed_bytes
        return unembed + self.norm_bytes


BlockRanges = tuple[tuple[int, int], ...]
"""Blocks [start, end), ascending and apart."""


@dataclass(frozen=True, slots=True)
class HeldParts:
    """What a member has of the model already, and how quickly the rest comes.

    `*_head`: embedding, norm and unembedding. Rates are in bytes as `Model` counts them; None means not measured.
    """

    disk_blocks: BlockRanges = ()
    memory_blocks: BlockRanges = ()
    disk_head: bool = False
    memory_head: bool = False
    fetch_bytes_per_s: float | None = None
    load_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A member as the planner sees it. None means not measured.

    `memory_bytes` is what it lends at most, the runtime's reserve included. `rtt_s` is its round trip to the
    rendezvous. `block_s` and `head_s` are measured seconds of one block and of norm plus unembedding by batch size;
    where given they stand above `bandwidth_bytes_per_s`. `prefill_s`: of one block by tokens of a prompt at a time.
    `handling_s` is what a sequence's token takes at a stage beside the model (frames, links, hand-overs), and
    `head_handling_s` what it takes at the head besides; no run of several sequences makes them less. `holds`: None
    where it was not told.
    """

    name: str
    mapping: Mapping = Mapping.UNKNOWN
    filtering: Filtering = Filtering.UNKNOWN
    udp: bool = True
    rtt_s: float | None = None
    bandwidth_bytes_per_s: float | None = None
    overhead_s: float | None = None
    flops_per_s: float | None = None
    memory_bytes: int | None = None
    block_s: StepTimes = ()
    head_s: StepTimes = ()
    prefill_s: StepTimes = ()
    handling_s: float | None = None
    head_handling_s: float | None = None
    holds: HeldParts | None = None


@dataclass(frozen=True, slots=True)
class MeasuredEdge:
    """A measured pair; the names ascend. A None stays predicted. `bytes_per_s`: what each of them sends the other."""

    between: tuple[str, str]
    rtt_s: float | None
    path: Path | None
    bytes_per_s: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Problem:
    """`anchor`: who opened the session. `require`, `exclude`: member names. See `Objective.by_default`.

    `most_rows`: the sequences that a run of a stage has at most. Where it is told, rates are those of an engine that
    makes whole runs (see `model/runs.py`). `chunk_tokens`: of a prompt that a stage takes at once; None for all.
    `state_bytes`: of a token, from one stage to the next; None where that is not known.
    """

    model: Model
    members: tuple[Node, ...]
    anchor: str
    context_tokens: int
    concurrency: int
    objective: Objective
    strategy: Strategy = Strategy.KAFILA
    reserve_bytes: int = 0
    prefill_peak_bytes: int = 0
    prompt_tokens: int | None = None
    most_rows: int | None = None
    chunk_tokens: int | None = None
    state_bytes: int | None = None
    require: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()
    edges: tuple[MeasuredEdge, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """Blocks [start, end) on a member. `cost_s` is of one step at batch 1: relative in the arithmetic tier, None below.

    `limit_blocks`: the most blocks it could hold from `start` on, in this role.
    """

    member: str
    start: int
    end: int
    cost_s: float | None
    resident_bytes: int
    limit_blocks: int


@dataclass(frozen=True, slots=True)
class PlannedHop:
    """`cost_s` is one way: half the round trip."""

    from_member: str
    to_member: str
    path: Path
    cost_s: float | None


@dataclass(frozen=True, slots=True)
class Idle:
    """A member without blocks, and the rate of the same members plus this one (None: it can't take part)."""

    member: str
    why: str
    tokens_per_s_with: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Who holds what. `order` and `stages` start at the head; `hops[i]` leaves `order[i]`.

    Times are of one decode step at batch 1. `ring_cost_s` is the paper's sum of round trips, `network_s` what a token
    pays. `tokens_per_s` is at the declared concurrency with `batch` sequences a step. `ttft_s` is of a prompt of
    `prompt_tokens`. `handling_s` is the part of each stage's cost that is not the model's. `notes` says in words what
    was missing or assumed.
    """

    tier: Tier
    ordered_by: OrderedBy
    search: SearchKind
    head: str
    order: tuple[str, ...]
    stages: tuple[PlannedStage, ...]
    hops: tuple[PlannedHop, ...]
    relayed_hops: int
    ring_cost_s: float | None
    bottleneck_s: float | None
    compute_s: float | None
    network_s: float | None
    circuit_s: float | None
    imbalance: float | None
    utilisation: float | None
    tokens_per_s: float | None
    tokens_per_s_one_user: float | None
    batch: int
    ttft_s: float | None
    prompt_tokens: int | None = None
    handling_s: tuple[float, ...] = ()
    idle: tuple[Idle, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def model_s(self, place: int) -> float | None:
        """What a run of one sequence is predicted to take of a stage's model."""
        cost_s = self.stages[place].cost_s
        return None if cost_s is None else cost_s - (self.handling_s[place] if self.handling_s else 0.0)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Not admitted: who is too small, by how much, and what would fit."""

    reason: str
    undersized: str
    missing_bytes: int
    suggestions: tuple[str, ...] = ()
