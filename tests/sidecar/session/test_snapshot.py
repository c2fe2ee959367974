"""A session as its snapshot shows it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafila_planner import plan_to_json
from kafila_proto import ring_pb2
from kafila_sidecar.session.coordination.edges import FormedLink
from kafila_sidecar.session.coordination.effects import Fault, Proposal
from kafila_sidecar.session.coordination.follower import Follower
from kafila_sidecar.session.coordination.messages import Doing
from kafila_sidecar.session.driving.roster import Roster
from kafila_sidecar.session.snapshot import Lasting, session_view
from tests.sidecar.session.driver_world import PlayedChannel
from tests.support.plans import plan_of, problem_of, stage

STAGES = [stage("ada", 0, 2, cost_s=0.01, resident_bytes=2000), stage("bob", 2, 4, cost_s=None)]
PROPOSAL = Proposal(3, problem_of("ada", "bob"), plan_of(STAGES, hop_s=(0.002, None)))
CHECKPOINT = SimpleNamespace(
    anatomy=SimpleNamespace(notices=("its window ends",)),
    config={"model_type": "llama", "hidden_size": 8},
    parameters=7,
    quantization="F32",
    generation_config={"top_k": 5},
    small_files=Path(__file__).parent,  # where no template is
    weight_bytes=28,
    gap=None,
)


class ViewedSession:
    """A channel, a machine and a roster that a test changes, and the snapshot of them."""

    def __init__(self, model: str = "org/Model-1B") -> None:
        self.channel = PlayedChannel("bob", "ada", "bob", "cyd")
        self.channel.terms = ring_pb2.SessionTerms(model=model, members_wanted=4, context_tokens=64, concurrency=2)
        self.follower = Follower(name="bob", host="ada", members=("ada", "bob", "cyd"))
        self.roster = Roster(("ada", "bob", "cyd"))
        self.checkpoint: Any = CHECKPOINT
        self.lasting = Lasting(cast(Any, self.channel))

    def view(self) -> Any:
        channel: Any = self.channel
        channel.session, channel.joining = b"0123456789abcdef", "open"
        return session_view(
            channel=channel,
            follower=self.follower,
            roster=self.roster,
            coordinator=None,
            checkpoint=cast(Any, self.checkpoint),
            lasting=self.lasting,
        )


def test_view_when_forming_then_members_in_order_and_who_is_missing() -> None:
    shown = ViewedSession().view()
    assert [(m.name, m.role, m.present) for m in shown.members] == [
        ("ada", "host", True),
        ("bob", "member", True),
        ("cyd", "member", True),
    ]
    assert (shown.state, "1 more member" in shown.doing) == ("forming", True)
    assert not shown.stages
    assert list(shown.notices) == ["its window ends"]


def test_view_when_a_member_left_and_is_heard_again_then_present_follows() -> None:
    seen = ViewedSession()
    seen.follower.liveness.receive_departure("cyd", 0.0)
    seen.follower.handle_timer(9.0, {})
    assert [m.present for m in seen.view().members] == [True, True, False]
    assert "2 more members" in seen.view().doing
    seen.follower.liveness.receive_message("cyd", 10.0)
    assert [m.present for m in seen.view().members] == [True, True, True]


def test_view_when_planned_then_stages_and_hops_with_what_is_known() -> None:
    seen = ViewedSession()
    seen.follower.proposed(PROPOSAL)
    seen.roster.linked("bob", "ada", FormedLink("relay", 0.02, 0.1, 0.1))
    shown = seen.view()
    assert json.loads(shown.plan_json) == plan_to_json(PROPOSAL.plan)
    assert [(s.member, s.start, s.end, s.head, s.resident_bytes, s.predicted_s) for s in shown.stages] == [
        ("ada", 0, 2, True, 2000, 0.01),
        ("bob", 2, 4, False, 1000, 0.0),
    ]
    assert [(getattr(h, "from"), h.to, h.path, h.rtt_s) for h in shown.hops] == [
        ("ada", "bob", "relay", 0.02),
        ("bob", "ada", "relay", 0.02),
    ]


@pytest.mark.parametrize(("epoch", "measured_s"), [(3, 0.5), (2, 0.0)])
def test_view_when_there_is_a_trace_then_only_the_present_epochs_counts(epoch: int, measured_s: float) -> None:
    seen = ViewedSession()
    seen.follower.proposed(PROPOSAL)
    hop = {"from": "ada", "to": "bob", "measured_s": 0.5}
    seen.roster.measured({"epoch": epoch, "stages": [{"member": "bob", "measured_s": 0.5}], "hops": [hop]})
    shown = seen.view()
    assert [s.measured_s for s in shown.stages] == [0.0, measured_s]
    assert [h.measured_s for h in shown.hops] == [measured_s, 0.0]


@pytest.mark.parametrize("stages", [[], [{"member": "bob", "measured_s": 0.0}]], ids=["embedded", "one token"])
def test_view_when_an_answer_had_no_decode_step_then_what_they_took_before_is_still_shown(
    stages: list[dict[str, Any]],
) -> None:
    seen = ViewedSession()
    seen.follower.proposed(PROPOSAL)
    hop = {"from": "ada", "to": "bob", "measured_s": 0.25}
    seen.roster.measured({"epoch": 3, "stages": [{"member": "bob", "measured_s": 0.5}], "hops": [hop]})
    seen.roster.measured({"epoch": 3, "stages": stages, "hops": [{**hop, "measured_s": 0.0}]})
    shown = seen.view()
    assert [s.measured_s for s in shown.stages] == [0.0, 0.5]
    assert [h.measured_s for h in shown.hops] == [0.25, 0.0]


def test_view_when_closed_by_a_fault_then_it_says_so() -> None:
    seen = ViewedSession()
    seen.follower.close(Fault("ada", "UNAVAILABLE", "ada was lost"))
    shown = seen.view()
    assert (shown.state, shown.failure, shown.failure_code) == ("closed", "ada was lost", "UNAVAILABLE")


@pytest.mark.parametrize(
    ("model", "name"),
    [("org/Model-1B", "model-1b"), ("/home/me/My Model/", "my-model"), ("Ünicode", "-nicode"), ("a.b_c", "a.b_c")],
)
def test_stub_model_when_the_model_is_called_anything_then_its_name_is_one_that_ollama_takes(
    model: str, name: str
) -> None:
    stub_model = ViewedSession(model).view().vehicle
    assert stub_model.name == f"kafila/session/{name}:303132"
    assert (stub_model.parameters["top_k"], stub_model.parameters["repeat_penalty"]) == (5.0, 1.0)
    assert (stub_model.architecture, stub_model.context_length, stub_model.parameter_count) == ("llama", 64, 7)


def test_view_when_the_model_is_not_known_here_yet_then_there_is_no_stub_model_to_register() -> None:
    seen = ViewedSession()
    seen.checkpoint = None
    shown = seen.view()
    assert not shown.HasField("vehicle")
    assert shown.model == "org/Model-1B"


def test_view_when_a_member_waits_for_a_source_then_it_says_for_what_and_at_which_rate_it_went() -> None:
    seen = ViewedSession()
    seen.roster.progressed("cyd", Doing(1, "fetching", 5, 10, 2.5, "the model host answers 503, next try in 8 s"))
    shown = seen.view().members[2]
    assert (shown.fetched_bytes, shown.fetch_total_bytes, shown.fetch_rate_bytes_per_s) == (5, 10, 2.5)
    assert shown.waits_for == "the model host answers 503, next try in 8 s"


def test_plan_when_it_is_shown_again_then_it_is_not_written_anew_unless_it_is_another() -> None:
    seen = ViewedSession()
    seen.follower.proposed(PROPOSAL)
    first = seen.lasting.plan_json(PROPOSAL.plan)
    assert seen.view().plan_json == first
    assert seen.lasting.plan_json(PROPOSAL.plan) is first
    other = plan_of([stage("ada", 0, 3), stage("bob", 3, 4)])
    assert json.loads(seen.lasting.plan_json(other)) == plan_to_json(other)
