"""What members say, checked at the edge: from a control message to plain values, or InvalidInput.

A member that says nonsense is not heard; it brings nobody down.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kafila_planner
from kafila_proto import ring_pb2
from kafila_sidecar.errors import BY_CODE, InvalidInput
from kafila_sidecar.foreign import line
from kafila_sidecar.net import candidates as reach
from kafila_sidecar.net.candidates import Candidate
from kafila_sidecar.session.coordination.edges import FormedLink
from kafila_sidecar.session.coordination.effects import Fault, Json
from kafila_sidecar.session.membership.names import LONGEST_NAME
from kafila_sidecar.weights.format.ranges import Ranges, Span

LARGEST_ENTRY_BYTES = 32 * 1024  # a member's measurement
LARGEST_TRACE_BYTES = 64 * 1024
DEEPEST_JSON = 16
LONGEST_SENTENCE = 500  # characters
LONGEST_DEVICE = 80
LONGEST_VERSION = 40
LONGEST_WAIT = 200  # of a sentence on what is waited for
MOST_SOURCES = 64
MOST_FILES = 4096  # weight files of a checkpoint
MOST_SPANS = 8192  # that a member tells of at once, some 100 KB
LONGEST_S = 600.0  # of a round trip, of forming a link, of a step, or until a better plan may be taken
MOST_ASKING = 16  # requests that a head tells of
SHORTEST_S = 1e-9  # of a step; 0 means not measured
MOST_BYTES = 1 << 60  # of memory; more is a mistake
CHOOSING = "choosing"  # the host's person looks at the plan
DOINGS = frozenset({CHOOSING, "fetching", "loading", "ready"})
PATHS = frozenset({"direct", "relay"})


@dataclass(frozen=True, slots=True)
class Measured:
    """A member's entry for the planner, as it told it, what it computes on, and which Kafila it runs."""

    entry: Json
    device: str
    memory_bytes: int
    kafila: str = ""  # the version of its package; an older one says none


@dataclass(frozen=True, slots=True)
class Reachable:
    candidates: Sequence[Candidate]


@dataclass(frozen=True, slots=True)
class Linked:
    """The speaker's link to a peer stands, or moved to another path."""

    peer: str
    edge: FormedLink


@dataclass(frozen=True, slots=True)
class Unlinked:
    peer: str


@dataclass(frozen=True, slots=True)
class Doing:
    epoch: int
    doing: str
    fetched_bytes: int
    total_bytes: int
    rate_bytes_per_s: float = 0.0
    waits_for: str = ""


@dataclass(frozen=True, slots=True)
class Lendable:
    """What the speaker can give of the checkpoint: bytes by the place of their file."""

    held: Mapping[int, Ranges]


@dataclass(frozen=True, slots=True)
class Drawing:
    """Whom the speaker takes weights from."""

    sources: frozenset[str]


@dataclass(frozen=True, slots=True)
class Lost:
    """The speaker holds a member to be lost."""

    member: str


@dataclass(frozen=True, slots=True)
class Misbehaved:
    """The speaker found frames of another member that break the rules, which the fault names."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class HasBegun:
    """Whoever is missing is not waited for any more."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The speaker wants to know whether a member is there."""

    member: str


@dataclass(frozen=True, slots=True)
class MemberFailed:
    """The speaker can't go on; the fault is its own."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class Over:
    """The session can't go on; the fault may be anybody's."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class Aside:
    """A member takes no part in the plan; the fault says why."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class Short:
    """The model does not fit in what those present offer; the session waits for another member."""

    sentence: str


@dataclass(frozen=True, slots=True)
class WantsToLeave:
    """The speaker is to leave, and serves until the others have planned without it."""


@dataclass(frozen=True, slots=True)
class Needed:
    """A member that is to leave can't be done without; the fault is in its name."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The speaker leaves."""


@dataclass(frozen=True, slots=True)
class Traced:
    """The head's record of a request."""

    trace: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Working:
    """What the head does right now."""

    busy: ring_pb2.Busy


@dataclass(frozen=True, slots=True)
class Planned:
    """`rests_s`: from now on no better plan is taken for so long."""

    epoch: int
    problem_json: str
    plan_json: str
    rests_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MayFetch:
    epoch: int


@dataclass(frozen=True, slots=True)
class MayServe:
    epoch: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """What concerns the membership only, or a later version."""


Said = (
    Measured
    | Reachable
    | Linked
    | Unlinked
    | Doing
    | Lendable
    | Drawing
    | Lost
    | Misbehaved
    | HasBegun
    | Asked
    | MemberFailed
    | Over
    | Aside
    | Short
    | WantsToLeave
    | Needed
    | Goodbye
    | Traced
    | Working
    | Planned
    | MayFetch
    | MayServe
    | Nothing
)


def read(speaker: str, control: ring_pb2.Control) -> Said:
    """Raises InvalidInput for what no honest member would say."""
    match control.WhichOneof("body"):
        case "capability":
            return _measured(speaker, control.capability)
        case "candidates":
            return Reachable(reach.from_proto(control.candidates))
        case "link":
            return _link(control.link)
        case "progress":
            return _doing(control.epoch, control.progress)
        case "holds":
            return read_holds(control.holds)
        case "draws":
            return Drawing(frozenset(control.draws.sources[:MOST_SOURCES]))
        case "fault":
            return _fault(speaker, control.fault)
        case "begun":
            return HasBegun()
        case "ask":
            return Asked(control.ask.member)
        case "leaving":
            return WantsToLeave()
        case "goodbye":
            return Goodbye()
        case "measured":
            return Traced(_trace(control.measured.trace_json))
        case "busy":
            return Working(_busy(control.busy))
        case "plan":
            return _planned(control.epoch, control.plan)
        case "go":
            return MayFetch(control.epoch)
        case "ready":
            return MayServe(control.epoch)
        case _:
            return Nothing()


def read_json(text: str, most_bytes: int) -> Any:
    """A JSON value without NaN and infinities, at most `DEEPEST_JSON` deep; raises InvalidInput."""
    if len(text) > most_bytes:
        raise InvalidInput(f"{len(text)} characters of JSON are over {most_bytes}")
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"JSON that can't be read: {type(error).__name__}") from error
    if isinstance(value, dict | list):
        _check_depth(value, DEEPEST_JSON)
    return value


def _measured(speaker: str, capability: ring_pb2.Capability) -> Measured:
    entry = read_json(capability.member_json, LARGEST_ENTRY_BYTES)
    if not isinstance(entry, dict) or entry.get("name") != speaker:
        raise InvalidInput(f"{speaker} told a measurement that is not its own")
    try:
        member = kafila_planner.member_from_json(entry)
    except kafila_planner.BadProblem as error:
        raise InvalidInput(f"{speaker} told a measurement that can't be planned with: {error}") from None
    memory = member.memory_bytes or 0
    if memory > MOST_BYTES:
        raise InvalidInput(f"{speaker} has memory that is no number of bytes")
    return Measured(entry, line(capability.device, LONGEST_DEVICE), memory, line(capability.kafila, LONGEST_VERSION))


def _planned(epoch: int, plan: ring_pb2.PlanProposal) -> Planned:
    if not 0.0 <= plan.rests_s <= LONGEST_S:
        raise InvalidInput("a plan is to stand for no sensible time")
    return Planned(epoch, plan.problem_json, plan.plan_json, plan.rests_s)


def _link(report: ring_pb2.LinkReport) -> Linked | Unlinked:
    if not report.up:
        return Unlinked(report.peer)
    times = (report.rtt_s, report.punch_s, report.handshake_s)
    if report.path not in PATHS or not all(0.0 <= seconds <= LONGEST_S for seconds in times):
        raise InvalidInput("a link is neither direct nor relayed, or took no sensible time")
    if report.bytes_per_s and not 1.0 <= report.bytes_per_s <= MOST_BYTES:
        raise InvalidInput("a link carries no sensible number of bytes a second")
    return Linked(report.peer, FormedLink(report.path, *times, report.bytes_per_s))


def _doing(epoch: int, progress: ring_pb2.Progress) -> Doing:
    if progress.doing not in DOINGS:
        raise InvalidInput("a member does something that there is no word for")
    if not 0.0 <= progress.rate_bytes_per_s <= MOST_BYTES:
        raise InvalidInput("a member fetches at no sensible rate")
    waits_for = line(progress.waits_for, LONGEST_WAIT)
    return Doing(
        epoch, progress.doing, progress.fetched_bytes, progress.total_bytes, progress.rate_bytes_per_s, waits_for
    )


def read_holds(told: ring_pb2.Holds) -> Lendable:
    """Raises InvalidInput unless spans are in order, and not too many of them."""
    if len(told.files) > MOST_FILES or sum(len(file.starts) for file in told.files) > MOST_SPANS:
        raise InvalidInput("a member holds more parts than a checkpoint has")
    held: dict[int, Ranges] = {}
    for file in told.files:
        ends = [0, *file.ends]
        if len(file.starts) != len(file.ends) or file.file in held or max(ends) >= 1 << 63:
            raise InvalidInput("a member holds parts that have no ends")
        spans = list(zip(file.starts, file.ends, ends[:-1], strict=True))
        if not all(before <= start < end for start, end, before in spans):
            raise InvalidInput("a member holds parts that are not in order")
        held[file.file] = Ranges.of(Span(start, end) for start, end, _ in spans)
    return Lendable(held)


_AboutSomebody = Lost | Misbehaved | MemberFailed | Over | Aside | Short | Needed


def _fault(speaker: str, fault: ring_pb2.Fault) -> _AboutSomebody:
    if fault.kind == "lost":
        return Lost(fault.member)
    if fault.code not in BY_CODE:
        raise InvalidInput(f"{speaker} tells a fault without a known code")
    told = Fault(line(fault.member, LONGEST_NAME), fault.code, line(fault.sentence, LONGEST_SENTENCE))
    if fault.kind == "failed" and fault.member == speaker:
        return MemberFailed(told)
    match fault.kind:
        case "over":
            return Over(told)
        case "aside":
            return Aside(told)
        case "short":
            return Short(told.sentence)
        case "needed":
            return Needed(told)
        case "misbehaves" if fault.member != speaker:
            return Misbehaved(told)
    raise InvalidInput(f"{speaker} tells a fault of another, or of no known kind")


def _trace(text: str) -> Mapping[str, Any]:
    """A record whose parts that others read are what they should be."""
    trace = read_json(text, LARGEST_TRACE_BYTES)
    if not isinstance(trace, dict):
        raise InvalidInput("a trace is no record")
    stages, hops = trace.get("stages", []), trace.get("hops", [])
    good = (
        all(isinstance(trace.get(key, 0), int) for key in ("epoch", "output_tokens"))
        and _is_list_of(stages, texts=("member",))
        and all(_is_time(one.get("shared_s", 0)) and _is_count(one.get("shared_rows", 0)) for one in stages)
        and _is_list_of(hops, texts=("from", "to"))
        and isinstance(why := trace.get("why_no_guesses", ""), str)
    )
    if not good:
        raise InvalidInput("a trace has stages or hops that can't be read")
    return {**trace, "why_no_guesses": line(why, LONGEST_SENTENCE)} if why else trace


def _busy(busy: ring_pb2.Busy) -> ring_pb2.Busy:
    if not 0 <= busy.tokens_per_s < math.inf or len(busy.asking) > MOST_ASKING:
        raise InvalidInput("what the head is said to do can't be")
    return busy


def _is_list_of(entries: Any, *, texts: Sequence[str]) -> bool:
    """Records with these texts and a measured time in seconds."""
    return isinstance(entries, list) and all(
        isinstance(entry, dict)
        and all(isinstance(entry.get(key), str) for key in texts)
        and _is_time(entry.get("measured_s"))
        for entry in entries
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_time(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (value == 0 or SHORTEST_S <= value <= LONGEST_S)


def _check_depth(value: dict[str, Any] | list[Any], left: int) -> None:
    inner: Collection[Any] = value.values() if isinstance(value, dict) else value
    if inner and left == 0:
        raise InvalidInput(f"JSON is nested more than {DEEPEST_JSON} deep")
    for part in inner:
        if isinstance(part, dict | list):
            _check_depth(part, left - 1)


def _no_number(name: str) -> float:
    raise InvalidInput(f"JSON holds {name}, which is no number")
