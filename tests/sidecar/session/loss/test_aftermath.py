"""How a session would go on without each member, as every member works it out."""

import re
from typing import Any

import pytest

from kafila_planner import make_plan, problem_from_json
from kafila_planner.model.types import Plan
from kafila_sidecar.session.coordination.effects import Proposal
from kafila_sidecar.session.coordination.knowledge import Knowledge
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms, is_alike
from kafila_sidecar.session.loss.aftermath import NOTICED_S, Aftermath, aftermath, planned

GB = 10**9
MODEL = {
    "blocks": 12,
    "block_bytes": GB,
    "embed_bytes": GB,
    "unembed_bytes": GB,
    "kv_bytes_per_token_per_block": 0,
}


class Session:
    """What one of its members knows. `rooms`: gigabytes by name, in the order of the log."""

    def __init__(self, host: str = "a", require: tuple[str, ...] = (), **rooms: int) -> None:
        self.members = tuple(rooms)
        self.host = host
        self.terms = PlanningTerms(0, MODEL, 4096, 1, objective="latency", require=require)
        self.knows = Knowledge()
        for name, room in rooms.items():
            self.knows.measured(name, entry(name, room))
        problem = problem_from_json(self.knows.problem(self.terms, self.members, host=host))
        made = make_plan(problem)
        assert isinstance(made, Plan)
        self.proposal = Proposal(1, problem, made)
        for stage in made.stages:
            self.holds(stage.member, memory_blocks=[[stage.start, stage.end]], memory_head=stage.member == made.head)

    def holds(self, member: str, **told: Any) -> None:
        known = self.knows.capabilities[member]
        self.knows.measured(member, {**known, "holds": {**known["holds"], **told}})

    def without(self, lost: str) -> Aftermath:
        found = aftermath(lost, self.proposal, self.terms, self.knows, self.members, host=self.host)
        return found if isinstance(found, Aftermath) else planned(lost, found)


def entry(name: str, room: int) -> dict[str, Any]:
    rates = {"fetch_bytes_per_s": 1e8, "load_bytes_per_s": 1e9}
    return {
        "name": name,
        "nat": "permissive",
        "rtt_s": 0.01,
        "bandwidth_bytes_per_s": 100 * GB,
        "overhead_s": 0.001,
        "memory_bytes": room * GB,
        "holds": rates,
    }


def test_aftermath_when_the_others_lack_the_bytes_then_it_counts_fetching_and_loading() -> None:
    session = Session(a=9, b=9, c=9)
    for lost in session.proposal.plan.order:
        found = session.without(lost)
        assert found.wait_s is not None
        assert found.plan is not None
        assert lost not in found.plan.order
        assert found.wait_s > NOTICED_S + 10
        assert found.fetch_bytes
        assert re.fullmatch(r"goes on after about \d+ s, for which \d+\.\d GB are fetched", found.sentence)


def test_aftermath_when_the_bytes_are_on_disk_then_the_wait_is_that_of_loading() -> None:
    session = Session(a=9, b=9, c=9)
    before = {lost: session.without(lost).wait_s or 0.0 for lost in session.proposal.plan.order}
    for name in session.members:
        session.holds(name, disk_blocks=[[0, 12]], disk_head=True)
    for lost in before:
        after = session.without(lost)
        assert after.wait_s is not None
        assert NOTICED_S <= after.wait_s < before[lost] / 3
        assert re.fullmatch(r"goes on after about \d+ s", after.sentence)


def test_aftermath_when_too_little_memory_is_left_then_it_says_how_much() -> None:
    session = Session(a=6, b=6, c=6)
    found = session.without("b")
    assert found.wait_s is None
    assert found.sentence == "can't go on: 2.0 GB too little"
    assert found.part_of("a") is None


def test_aftermath_when_who_stands_by_is_lost_then_nobody_stops() -> None:
    session = Session(a=20, b=20, c=20)
    idle = next(name for name in ("c", "b") if name not in session.proposal.plan.order)
    assert session.without(idle) == Aftermath(idle, 0.0)
    assert session.without(idle).sentence == "goes on at once"


def test_aftermath_when_the_host_is_lost_then_the_next_of_the_log_is_the_anchor() -> None:
    session = Session(a=9, b=9, c=9)
    found = aftermath("a", session.proposal, session.terms, session.knows, session.members, host="a")
    assert not isinstance(found, Aftermath)
    assert found["anchor"] == "b"
    assert [one["name"] for one in found["members"]] == ["b", "c"]


def test_aftermath_when_two_are_left_then_nobody_succeeds_the_host_but_the_host_goes_on_alone() -> None:
    session = Session(a=20, b=20)
    assert session.without("a").sentence == "can't go on: of two, nobody succeeds the host"
    assert session.without("b").wait_s is not None


def test_aftermath_when_a_required_member_is_lost_then_the_others_are_planned() -> None:
    session = Session(a=9, b=9, c=9, require=("b",))
    assert session.without("b").wait_s is not None


def test_part_when_the_plan_without_somebody_is_known_then_it_is_this_member_s_stage_in_it() -> None:
    session = Session(a=9, b=9, c=9)
    found = session.without("b")
    assert found.plan is not None
    parts = [found.part_of(name) for name in found.plan.order]
    assert [part[1] for part in parts if part] == [True, False]
    assert sum(part[0].end - part[0].start for part in parts if part) == 12
    assert found.part_of("b") is None


@pytest.mark.parametrize(
    ("change", "alike"), [({"holds": {"memory_head": True}}, True), ({"memory_bytes": 5e9}, False), ({}, True)]
)
def test_problems_when_only_holdings_differ_then_they_are_no_reason_to_plan_again(
    change: dict[str, Any], alike: bool
) -> None:
    session = Session(a=9, b=9, c=9)
    before = session.knows.problem(session.terms, session.members, host="a")
    session.knows.measured("b", {**session.knows.capabilities["b"], **change})
    assert is_alike(before, session.knows.problem(session.terms, session.members, host="a")) is alike
