"""What a request's trace says of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_proto import ring_pb2
from kafila_sidecar.serving.trace import Circuit, RequestTrace
from kafila_sidecar.session.coordination import messages
from kafila_sidecar.session.coordination.effects import Proposal
from tests.support.plans import plan_of, problem_of, stage

PROPOSAL = Proposal(1, problem_of(members=[{"name": "ada"}, {"name": "bob"}]), plan_of([stage("ada", 0, 1)]))
WAITED = Circuit((0.5,), (4.0,), 5.0, 64, 64)  # of a prompt's last token, behind all others of it
STEP = Circuit((0.1,), (0.1,), 0.125, 64, 64)
FOUR = Circuit((0.25,), (0.25,), 0.25, 256, 256, guesses=3, right=3)


@pytest.mark.parametrize(
    ("circuits", "circuit_s", "stage_s", "network_s"),
    [
        ([WAITED], 0.0, 0.0, 0.0),
        ([WAITED, STEP], 0.125, 0.1, 0.025),
        ([WAITED, FOUR, STEP], 0.125, 0.1, 0.025),
        ([WAITED, FOUR], 0.25, 0.0, 0.0),
    ],
)
def test_record_when_few_tokens_came_then_the_prompts_circuit_is_no_measure_of_them(
    circuits: list[Circuit], circuit_s: float, stage_s: float, network_s: float
) -> None:
    trace = RequestTrace(PROPOSAL, request="1", prompt_tokens=1, began=0.0, replay=ring_pb2.Replay())
    trace.admitted(0.0)
    for at, circuit in enumerate(circuits):
        trace.token(circuit, 5.0 + at, 1 + circuit.right)
    record = trace.record(reason="length", link_rtt_s={})
    assert (record["circuit_s"], record["network_s"]) == pytest.approx((circuit_s, network_s))
    assert [one["measured_s"] for one in record["stages"]] == pytest.approx([stage_s])


def test_record_when_others_shared_a_stages_runs_then_each_kind_of_run_has_its_time() -> None:
    """A run of three takes longer than the plan says of one: taken for it, who is busy would look slow."""
    shared = Circuit((0.3,), (0.9,), 0.95, 64, 64, rows=(3,))
    rarely = Circuit((0.5,), (0.9,), 0.95, 64, 64, rows=(4,))
    guessed = Circuit((0.7,), (0.9,), 0.95, 64, 64, rows=(3,), guesses=2)
    for steps, stage_s, rows in (([shared] * 9, 0.0, 3.0), ([*[shared] * 8, rarely, guessed, STEP], 0.1, 2.9)):
        trace = RequestTrace(PROPOSAL, request="1", prompt_tokens=1, began=0.0, replay=ring_pb2.Replay())
        trace.admitted(0.0)
        for at, circuit in enumerate([WAITED, *steps]):
            trace.token(circuit, 5.0 + at)
        (told,) = trace.record(reason="length", link_rtt_s={})["stages"]
        assert (told["measured_s"], told["rows"]) == pytest.approx((stage_s, rows))
        assert (told["shared_rows"], told["shared_s"]) == (3, pytest.approx(0.3))


RING = Proposal(
    1, problem_of(members=[{"name": "ada"}, {"name": "bob"}]), plan_of([stage("ada", 0, 1), stage("bob", 1, 2)])
)
SECONDS = st.sampled_from([0.0, 1e-12, 1e-9, 0.1, 600.0, 1e6])


@given(stages=st.tuples(SECONDS, SECONDS), network_s=SECONDS, rtt_s=SECONDS, rows=st.sampled_from([1, 2]))
def test_record_whatever_its_times_are_then_others_read_it(
    stages: tuple[float, float], network_s: float, rtt_s: float, rows: int
) -> None:
    """Of a record that can't be read all is lost."""
    trace = RequestTrace(RING, request="1", prompt_tokens=1, began=0.0, replay=ring_pb2.Replay())
    trace.admitted(0.0)
    for at in range(3):
        trace.token(Circuit(stages, stages, sum(stages) + network_s, 64, 64, rows=(rows, rows)), 5.0 + at)
    record = trace.record(reason="length", link_rtt_s={frozenset(("ada", "bob")): rtt_s})
    told = ring_pb2.Control(measured=ring_pb2.Measured(trace_json=json.dumps(record)))
    assert messages.read("ada", told) == messages.Traced(record)


@pytest.mark.parametrize(("tokens", "answer_s"), [(0, 0.0), (1, 0.0), (2, 1.5), (3, 2.5)])
def test_spent_when_told_then_a_single_token_is_the_prompts_and_others_count_until_all_is_done(
    tokens: int, answer_s: float
) -> None:
    trace = RequestTrace(PROPOSAL, request="1", prompt_tokens=1, began=0.0, replay=ring_pb2.Replay())
    trace.admitted(1.0)
    for at in range(tokens):
        trace.token(STEP, 5.0 + at)
    assert trace.spent_s(4.5 + tokens) == (4.0 if tokens else 0.0, answer_s)
