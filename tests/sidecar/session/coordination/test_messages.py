"""What members say, read at the edge."""

import json
from typing import Any

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.session.coordination import messages
from kafila_sidecar.session.coordination.edges import FormedLink
from kafila_sidecar.session.coordination.effects import Fault
from kafila_sidecar.session.coordination.messages import (
    Doing,
    Drawing,
    HasBegun,
    Lendable,
    Linked,
    Lost,
    Measured,
    MemberFailed,
    Misbehaved,
    Nothing,
    Over,
    Traced,
    Unlinked,
)
from kafila_sidecar.weights.format.ranges import Ranges, Span
from tests.sidecar.session.trust_world import go, parsed
from tests.support.fuzz import fuzz

TRACE: dict[str, Any] = {
    "epoch": 1,
    "output_tokens": 9,
    "stages": [{"member": "anna", "measured_s": 0.1}],
    "hops": [{"from": "anna", "to": "ben", "measured_s": 0.2, "path": "direct"}],
}


def capability(text: str, device: str = "cpu") -> ring_pb2.Control:
    return ring_pb2.Control(capability=ring_pb2.Capability(member_json=text, device=device))


def link(**fields: Any) -> ring_pb2.Control:
    return ring_pb2.Control(link=ring_pb2.LinkReport(**{"peer": "ben", "up": True, "path": "direct", **fields}))


def doing(word: str, **fields: Any) -> ring_pb2.Control:
    return ring_pb2.Control(epoch=3, progress=ring_pb2.Progress(doing=word, fetched_bytes=1, total_bytes=2, **fields))


def plan(rests_s: float) -> ring_pb2.Control:
    return ring_pb2.Control(plan=ring_pb2.PlanProposal(problem_json="{}", plan_json="{}", rests_s=rests_s))


def holds(*files: tuple[int, list[int], list[int]]) -> ring_pb2.Control:
    held = [ring_pb2.HeldFile(file=file, starts=starts, ends=ends) for file, starts, ends in files]
    return ring_pb2.Control(holds=ring_pb2.Holds(files=held))


def fault(kind: str, member: str = "anna", code: str = "INTERNAL", sentence: str = "why") -> ring_pb2.Control:
    return ring_pb2.Control(fault=ring_pb2.Fault(member=member, kind=kind, code=code, sentence=sentence))


def trace(**changes: Any) -> ring_pb2.Control:
    return ring_pb2.Control(measured=ring_pb2.Measured(trace_json=json.dumps({**TRACE, **changes})))


@pytest.mark.parametrize(
    ("control", "said"),
    [
        (capability('{"name": "anna", "memory_bytes": 7}'), Measured({"name": "anna", "memory_bytes": 7}, "cpu", 7)),
        (
            ring_pb2.Control(
                capability=ring_pb2.Capability(member_json='{"name": "anna"}', kafila="1.2\x1b" + 99 * "3")
            ),
            Measured({"name": "anna"}, "", 0, "1.2\ufffd" + 36 * "3"),
        ),
        (capability('{"name": "anna"}', "gpu\x1b[2J"), Measured({"name": "anna"}, "gpu\ufffd[2J", 0)),
        (link(rtt_s=0.5, punch_s=0.1, handshake_s=0.2), Linked("ben", FormedLink("direct", 0.5, 0.1, 0.2))),
        (link(rtt_s=0.5, bytes_per_s=2e6), Linked("ben", FormedLink("direct", 0.5, 0.0, 0.0, 2e6))),
        (link(up=False), Unlinked("ben")),
        (doing("loading"), Doing(3, "loading", 1, 2)),
        (
            doing("fetching", rate_bytes_per_s=5.0, waits_for="a\nb" * 200),
            Doing(3, "fetching", 1, 2, 5.0, "a b" * 66 + "a "),
        ),
        (holds((2, [1, 9], [4, 12])), Lendable({2: Ranges.of([Span(1, 4), Span(9, 12)])})),
        (ring_pb2.Control(draws=ring_pb2.Draws(sources=["ben"])), Drawing(frozenset({"ben"}))),
        (fault("lost", "ben", code=""), Lost("ben")),
        (fault("misbehaves", "ben"), Misbehaved(Fault("ben", "INTERNAL", "why"))),
        (ring_pb2.Control(begun=ring_pb2.Begun()), HasBegun()),
        (fault("failed"), MemberFailed(Fault("anna", "INTERNAL", "why"))),
        (fault("over", "ben", sentence="a\nb" + "c" * 600), Over(Fault("ben", "INTERNAL", "a b" + "c" * 497))),
        (trace(), Traced(TRACE)),
        (ring_pb2.Control(), Nothing()),
        (ring_pb2.Control(standing=ring_pb2.Standing(number=1)), Nothing()),
    ],
)
def test_read_when_it_makes_sense_then_plain_values(control: ring_pb2.Control, said: messages.Said) -> None:
    assert messages.read("anna", control) == said


@pytest.mark.parametrize(
    "control",
    [
        link(bytes_per_s=-1.0),
        link(bytes_per_s=5e-324),
        link(bytes_per_s=1e300),
        plan(-1.0),
        plan(float("nan")),
        plan(float("inf")),
        capability("[]"),
        capability('{"name": "ben"}'),
        capability('{"name": "anna", "memory_bytes": "many"}'),
        capability('{"name": "anna", "rtt_s": "far"}'),
        capability('{"name": "anna", "colour": "red"}'),
        capability('{"name": "anna", "block_s": {"1": 1e308}}'),
        trace(stages=[{"member": "anna", "measured_s": 5e-324}]),
        trace(stages=[{"member": "anna", "measured_s": 1e300}]),
        trace(hops=[{"from": "anna", "to": "ben", "measured_s": -1}]),
        capability('{"name": "anna", "memory_bytes": -1}'),
        capability('{"name": "anna", "memory_bytes": 1e300}'),
        capability('{"name": "anna", "memory_bytes": NaN}'),
        capability('{"name": "anna", "memory_bytes": 1' + "0" * 400 + "}"),
        capability('{"name": "anna", "x": "' + "y" * messages.LARGEST_ENTRY_BYTES + '"}'),
        link(path="teleport"),
        link(rtt_s=float("nan")),
        link(rtt_s=-1.0),
        link(rtt_s=float("inf")),
        link(punch_s=-0.5),
        doing("\x1b[31mhacking"),
        doing("fetching", rate_bytes_per_s=-1.0),
        doing("fetching", rate_bytes_per_s=float("nan")),
        doing("fetching", rate_bytes_per_s=float("inf")),
        holds((0, [5], [5])),
        holds((0, [5], [])),
        holds((0, [5, 1], [9, 3])),
        holds((0, [1, 3], [4, 9])),
        holds((0, [1], [1 << 63])),
        holds((0, [1], [2]), (0, [3], [4])),
        holds((0, list(range(0, 20_000, 2)), list(range(1, 20_001, 2)))),
        holds(*((file, [1], [2]) for file in range(messages.MOST_FILES + 1))),
        fault("failed", "ben"),
        fault("failed", code="OK"),
        fault("haunted"),
        fault("misbehaves"),
        fault("misbehaves", "ben", code="OK"),
        trace(stages=5),
        trace(stages=[{"member": [], "measured_s": 1}]),
        trace(stages=[{"member": "anna", "measured_s": None}]),
        trace(stages=[{"member": "anna", "measured_s": 10**400}]),
        trace(hops=[{"from": "anna"}]),
        trace(epoch="one"),
        ring_pb2.Control(measured=ring_pb2.Measured(trace_json="[]")),
        ring_pb2.Control(candidates=ring_pb2.Candidates(candidates=[ring_pb2.Candidate(kind="host", port=0)])),
    ],
)
def test_read_when_no_honest_member_says_it_then_invalid(control: ring_pb2.Control) -> None:
    with pytest.raises(InvalidInput):
        messages.read("anna", control)


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"a":' * 5000 + "1", "NaN", '{"a": Infinity}', "9" * 5000, "[" * 18 + "]" * 18, "\ud800"]
)
def test_read_json_when_it_is_made_to_break_parsers_then_typed(text: str) -> None:
    with pytest.raises(InvalidInput):
        messages.read_json(text, 100_000)


@pytest.mark.fuzz
@pytest.mark.fuzz
def test_read_when_bytes_are_hostile_then_typed_and_harmless() -> None:
    candidate = ring_pb2.Candidate(kind="host", address="192.0.2.1", port=4711, priority=1)
    samples = [
        go(1),
        ring_pb2.Control(goodbye=ring_pb2.Goodbye()),
        capability('{"name": "anna", "memory_bytes": 1e9, "block_s": {"1": 0.1}}'),
        ring_pb2.Control(candidates=ring_pb2.Candidates(candidates=[candidate])),
        plan(300.0),
        *(link(rtt_s=0.1), doing("fetching"), fault("lost"), fault("failed"), fault("over"), trace()),
    ]

    def read(data: bytes) -> None:
        check(messages.read("anna", parsed(ring_pb2.Control, data)))

    assert fuzz(read, [control.SerializeToString() for control in samples]) >= len(samples)


def check(said: messages.Said) -> None:
    """What others rely on."""
    match said:
        case Measured(entry, device, memory_bytes):
            assert json.loads(json.dumps(entry))["name"] == "anna"
            assert device.isprintable()
            assert 0 <= memory_bytes <= messages.MOST_BYTES
        case Linked(_, edge):
            assert edge.path in messages.PATHS
            assert 0 <= edge.rtt_s <= messages.LONGEST_S
            assert 0 <= edge.formed_s <= 2 * messages.LONGEST_S
        case Doing(doing=word):
            assert word in messages.DOINGS
        case MemberFailed(told) | Over(told):
            assert told.sentence.isprintable()
            assert len(told.sentence) <= messages.LONGEST_SENTENCE
        case Traced(record):
            assert all(float(stage["measured_s"]) >= 0 or stage["member"] for stage in record.get("stages", []))
