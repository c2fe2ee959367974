"""The JSON interface, in: problems. Sizes of blocks may be one number for all blocks or a list, an entry a block."""

from itertools import pairwise

from kafila_planner.errors import BadProblem
from kafila_planner.json.fields import (
    MOST_BLOCKS,
    MOST_MEMBERS,
    REQUIRED,
    Fields,
    Reader,
    T,
    listed,
    not_negative,
    one_of,
    positive,
    round_trip,
    text,
    truth,
    whole,
)
from kafila_planner.model.types import (
    BlockRanges,
    Filtering,
    HeldParts,
    Mapping,
    MeasuredEdge,
    Model,
    Node,
    Objective,
    Path,
    Problem,
    StepTimes,
    Strategy,
)

PROBLEM_FIELDS = [
    "model",
    "context_tokens",
    "concurrency",
    "anchor",
    "strategy",
    "objective",
    "reserve_bytes",
    "prefill_peak_bytes",
    "prompt_tokens",
    "most_rows",
    "chunk_tokens",
    "state_bytes",
    "require",
    "exclude",
    "members",
    "edges",
]
MODEL_FIELDS = [
    "blocks",
    "block_bytes",
    "embed_bytes",
    "unembed_bytes",
    "norm_bytes",
    "draft_bytes",
    "tied",
    "kv_bytes_per_token_per_block",
    "block_read_bytes",
    "kv_fixed_bytes",
    "kv_window_tokens",
    "no_cut_after",
]
MEMBER_FIELDS = [
    "name",
    "mapping",
    "filtering",
    "nat",
    "udp",
    "rtt_s",
    "bandwidth_bytes_per_s",
    "overhead_s",
    "flops_per_s",
    "memory_bytes",
    "block_s",
    "head_s",
    "prefill_s",
    "handling_s",
    "head_handling_s",
    "holds",
]
HOLDS_FIELDS = [
    "disk_blocks",
    "memory_blocks",
    "disk_head",
    "memory_head",
    "fetch_bytes_per_s",
    "load_bytes_per_s",
]
EDGE_FIELDS = ("between", "rtt_s", "path", "bytes_per_s")

DEFAULT_CONTEXT_TOKENS = 4096
MOST_RANGES = 256
"""That a member may hold blocks in; a checkpoint has far fewer gaps."""
MOST_EDGES = MOST_MEMBERS * (MOST_MEMBERS - 1) // 2

NAT: dict[str, tuple[Mapping, Filtering]] = {
    "permissive": (Mapping.ENDPOINT_INDEPENDENT, Filtering.ENDPOINT_INDEPENDENT),
    "ordinary": (Mapping.ENDPOINT_INDEPENDENT, Filtering.ADDRESS_AND_PORT_DEPENDENT),
    "restrictive": (Mapping.ADDRESS_AND_PORT_DEPENDENT, Filtering.ADDRESS_AND_PORT_DEPENDENT),
}
"""The paper's three classes as RFC 4787 behaviours."""


def problem_from_json(obj: object) -> Problem:
    """The problem as values; raises BadProblem with one sentence that names the field and the member."""
    fields = Fields("the problem", obj, PROBLEM_FIELDS)
    members = fields.get("members", _members)
    names = [member.name for member in members]
    concurrency = fields.get("concurrency", whole(1), 1)
    require = frozenset(_everybody(fields.get("require", listed(text), ()), names))
    exclude = frozenset(fields.get("exclude", listed(text), ()))
    anchor = fields.get("anchor", text, names[0])
    _check_names(names, anchor, require, exclude)
    return Problem(
        model=_model(fields.get("model", lambda _fields, _name, value: value)),
        members=members,
        anchor=anchor,
        context_tokens=fields.get("context_tokens", whole(1), DEFAULT_CONTEXT_TOKENS),
        concurrency=concurrency,
        strategy=fields.get("strategy", one_of(Strategy, Strategy), Strategy.KAFILA),
        objective=fields.get("objective", one_of(Objective, Objective), Objective.by_default(concurrency)),
        reserve_bytes=fields.get("reserve_bytes", whole(0), 0),
        prefill_peak_bytes=fields.get("prefill_peak_bytes", whole(0), 0),
        prompt_tokens=fields.get("prompt_tokens", whole(1), None),
        most_rows=fields.get("most_rows", whole(1), None),
        chunk_tokens=fields.get("chunk_tokens", whole(1), None),
        state_bytes=fields.get("state_bytes", whole(1), None),
        require=require,
        exclude=exclude,
        edges=_edges(fields.get("edges", listed(lambda _fields, _name, value: value, MOST_EDGES), ()), names),
    )


def member_from_json(value: object) -> Node:
    """One entry of "members"; raises BadProblem as `problem_from_json` does."""
    return _member(0, value)


def _members(fields: Fields, name: str, value: object) -> tuple[Node, ...]:
    wanted = f"a list of 1 to {MOST_MEMBERS} members"
    if not isinstance(value, list):
        raise fields.fault(name, wanted, value)
    if not 1 <= len(value) <= MOST_MEMBERS:
        raise BadProblem(f"{fields.owner}: {name} has to be {wanted}, not of {len(value)}")
    members = tuple(_member(place, entry) for place, entry in enumerate(value))
    names = [member.name for member in members]
    twice = sorted({one for one in names if names.count(one) > 1})
    if twice:
        raise BadProblem(f"the problem: members has the name {twice[0]!r} twice")
    return members


def _everybody(names: tuple[str, ...], members: list[str]) -> list[str]:
    """`["all"]` stands for every member, unless one is called that."""
    return members if names == ("all",) and "all" not in members else list(names)


def _check_names(names: list[str], anchor: str, require: frozenset[str], exclude: frozenset[str]) -> None:
    for field, given in (("anchor", {anchor}), ("require", require), ("exclude", exclude)):
        strangers = sorted(given - set(names))
        if strangers:
            raise BadProblem(f"the problem: {field} names {strangers[0]!r}, who is no member")
    torn = sorted(require & exclude)
    if torn:
        raise BadProblem(f"the problem: require and exclude both name {torn[0]!r}")
    if exclude >= set(names):
        raise BadProblem("the problem: exclude leaves no member")


def _model(value: object) -> Model:
    fields = Fields("the model", value, MODEL_FIELDS)
    blocks = fields.get("blocks", whole(1))
    if blocks > MOST_BLOCKS:
        raise fields.fault("blocks", f"at most {MOST_BLOCKS}", blocks)
    block_bytes = _each(fields, "block_bytes", blocks, whole(1))
    tied = fields.get("tied", truth, False)
    return Model(
        block_bytes=block_bytes,
        block_read_bytes=_each(fields, "block_read_bytes", blocks, whole(1), block_bytes),
        kv_bytes_per_token=_each(fields, "kv_bytes_per_token_per_block", blocks, whole(0)),
        kv_fixed_bytes=_each(fields, "kv_fixed_bytes", blocks, whole(0), (0,) * blocks),
        kv_window_tokens=_each(fields, "kv_window_tokens", blocks, _optional(whole(1)), (None,) * blocks),
        embed_bytes=fields.get("embed_bytes", whole(0)),
        unembed_bytes=fields.get("unembed_bytes", whole(0), 0 if tied else REQUIRED),
        norm_bytes=fields.get("norm_bytes", whole(0), 0),
        draft_bytes=fields.get("draft_bytes", whole(0), 0),
        tied=tied,
        no_cut_after=tuple(sorted(set(fields.get("no_cut_after", listed(_block(blocks)), ())))),
    )


def _each(
    fields: Fields, name: str, blocks: int, item: Reader[T], default: tuple[T, ...] | None = None
) -> tuple[T, ...]:
    """One entry a block from a number or a list."""

    def read(fields: Fields, name: str, value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            return (item(fields, name, value),) * blocks
        if len(value) != blocks:
            raise BadProblem(f"{fields.owner}: {name} has {len(value)} entries for {blocks} blocks")
        return listed(item)(fields, name, value)

    return fields.get(name, read, REQUIRED if default is None else default)


def _optional(item: Reader[T]) -> Reader[T | None]:
    return lambda fields, name, value: None if value is None else item(fields, name, value)


def _block(blocks: int) -> Reader[int]:
    def read(fields: Fields, name: str, value: object) -> int:
        block = whole(0)(fields, name, value)
        if block >= blocks:
            raise fields.fault(name, f"a block from 0 to {blocks - 1}", value)
        return block

    return read


def _member(place: int, value: object) -> Node:
    name = value.get("name") if isinstance(value, dict) else None
    owner = f"member {name!r}" if isinstance(name, str) and name else f"members[{place}]"
    fields = Fields(owner, value, MEMBER_FIELDS)
    name = fields.get("name", text)
    mapping, filtering = _behaviour(fields)
    return Node(
        name=name,
        mapping=mapping,
        filtering=filtering,
        udp=fields.get("udp", truth, True),
        rtt_s=fields.get("rtt_s", round_trip, None),
        bandwidth_bytes_per_s=fields.get("bandwidth_bytes_per_s", positive, None),
        overhead_s=fields.get("overhead_s", not_negative, None),
        flops_per_s=fields.get("flops_per_s", positive, None),
        memory_bytes=fields.get("memory_bytes", _bytes, None),
        block_s=fields.get("block_s", _step_times, ()),
        head_s=fields.get("head_s", _step_times, ()),
        prefill_s=fields.get("prefill_s", _step_times, ()),
        handling_s=fields.get("handling_s", not_negative, None),
        head_handling_s=fields.get("head_handling_s", not_negative, None),
        holds=fields.get("holds", _holds, None),
    )


def _holds(fields: Fields, name: str, value: object) -> HeldParts:
    held = Fields(f"{fields.owner}: {name}", value, HOLDS_FIELDS)
    return HeldParts(
        disk_blocks=held.get("disk_blocks", _block_ranges, ()),
        memory_blocks=held.get("memory_blocks", _block_ranges, ()),
        disk_head=held.get("disk_head", truth, False),
        memory_head=held.get("memory_head", truth, False),
        fetch_bytes_per_s=held.get("fetch_bytes_per_s", positive, None),
        load_bytes_per_s=held.get("load_bytes_per_s", positive, None),
    )


def _block_ranges(fields: Fields, name: str, value: object) -> BlockRanges:
    bounds = listed(listed(whole(0, MOST_BLOCKS), 2), MOST_RANGES)(fields, name, value)
    flat = [bound for pair in bounds for bound in pair]
    is_ascending = all(one < other for one, other in pairwise(flat))
    if any(len(pair) != 2 for pair in bounds) or not is_ascending:
        raise fields.fault(name, "pairs of a first block and the one after the last, ascending and apart", value)
    return tuple((pair[0], pair[1]) for pair in bounds)


def _behaviour(fields: Fields) -> tuple[Mapping, Filtering]:
    nat: str | None = fields.get("nat", one_of(str, NAT), None)
    mapping: Mapping | None = fields.get("mapping", one_of(Mapping, Mapping), None)
    filtering: Filtering | None = fields.get("filtering", one_of(Filtering, Filtering), None)
    if nat is None:
        return mapping or Mapping.UNKNOWN, filtering or Filtering.UNKNOWN
    if mapping is not None or filtering is not None:
        raise BadProblem(f"{fields.owner}: nat stands instead of mapping and filtering, give one or the other")
    return NAT[nat]


def _bytes(fields: Fields, name: str, value: object) -> int:
    """Bytes as measured, rounded down. A machine may have none to lend."""
    return int(not_negative(fields, name, value))


def _step_times(fields: Fields, name: str, value: object) -> StepTimes:
    if not isinstance(value, dict):
        raise fields.fault(name, "an object of seconds by batch size", value)
    steps: dict[int, float] = {}
    for key, seconds in value.items():
        batch = int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 10 else 0
        if batch < 1 or batch in steps:
            raise fields.fault(name, "keyed by batch sizes, each once", key)
        if seconds is not None:
            steps[batch] = positive(fields, f"{name}[{key}]", seconds)
    return tuple(sorted(steps.items()))


def _edges(values: tuple[object, ...], names: list[str]) -> tuple[MeasuredEdge, ...]:
    edges = [_edge(place, value, names) for place, value in enumerate(values)]
    pairs = [edge.between for edge in edges]
    twice = sorted({pair for pair in pairs if pairs.count(pair) > 1})
    if twice:
        raise BadProblem(f"the problem: edges has the pair {twice[0][0]!r}, {twice[0][1]!r} twice")
    return tuple(sorted(edges, key=lambda edge: edge.between))


def _edge(place: int, value: object, names: list[str]) -> MeasuredEdge:
    fields = Fields(f"edges[{place}]", value, EDGE_FIELDS)
    between = fields.get("between", listed(text))
    if len(set(between)) != 2 or len(between) != 2:
        raise fields.fault("between", "two different members", list(between))
    strangers = [one for one in between if one not in names]
    if strangers:
        raise BadProblem(f"edges[{place}]: between names {strangers[0]!r}, who is no member")
    first, second = sorted(between)
    fields.owner = f"the edge between {first!r} and {second!r}"
    path: Path | None = fields.get("path", one_of(Path, Path), None)
    return MeasuredEdge(
        between=(first, second),
        rtt_s=fields.get("rtt_s", round_trip, None),
        path=path,
        bytes_per_s=fields.get("bytes_per_s", _by_sender(first, second), (None, None)),
    )


def _by_sender(first: str, second: str) -> Reader[tuple[float | None, float | None]]:
    """Of either end of an edge, under its name."""

    def read(fields: Fields, name: str, value: object) -> tuple[float | None, float | None]:
        sent = Fields(f"{fields.owner}: {name}", value, (first, second))
        return sent.get(first, positive, None), sent.get(second, positive, None)

    return read
