"""One member's failure ends the session for nobody else: too small, silent at any step, or lying about it."""

from collections.abc import Sequence

import pytest

from kafila_planner import make_plan, problem_from_json
from kafila_planner.model.types import Plan
from kafila_sidecar.session.coordination.effects import (
    ComputePlan,
    CoordinatorOutput,
    Fault,
    FollowerOutput,
    Json,
    LoadShard,
    Proposal,
)
from kafila_sidecar.session.coordination.follower import REPLAN_DEADLINE_S
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.hosting.coordinator import Coordinator
from kafila_sidecar.session.hosting.waits import (
    FETCH_SILENCE_S,
    LINK_DEADLINE_S,
    MEASURE_DEADLINE_S,
    RETELL_DEADLINE_S,
)
from tests.sidecar.session.driver_world import ENTRY, MODEL
from tests.sidecar.session.party import CoreParty

MEASURED = {**ENTRY, "bandwidth_bytes_per_s": 2e10, "overhead_s": 1e-4, "block_s": {"1": 0.005}, "head_s": {"1": 0.01}}
BIG, SMALL = 3000, 100  # bytes, where a block takes 1,000 and the head 210
NAMES = ("ada", "bob", "cyd")


class MeasuredParty(CoreParty):
    """With the real planner, and members of which each offers what a test says."""

    def __init__(self, *, wanted: int = 3, strategy: str = "kafila", objective: str = "", require: str = "") -> None:
        super().__init__(wanted=wanted)
        self._terms = PlanningTerms(
            members_wanted=wanted,
            model=MODEL,
            context_tokens=4,
            concurrency=1,
            strategy=strategy,
            objective=objective,
            require=(require,) if require else (),
        )
        self.coordinator = Coordinator(name="ada", terms=self._terms)
        self.offers = dict.fromkeys((*NAMES, "dan"), BIG)
        self.silent: set[str] = set()  # who measures nothing
        self.stuck: set[str] = set()  # who loads nothing

    def measure(self, name: str) -> None:
        if name not in self.silent:
            entry: Json = {**MEASURED, "name": name, "memory_bytes": self.offers[name]}
            self.obey(self.coordinator.measured(name, entry, self.now))
            self.pump()

    def form(self) -> None:
        self.measure("ada")
        for name in NAMES[1:]:
            self.join(name)
            self.measure(name)

    def obey(self, outputs: Sequence[CoordinatorOutput]) -> None:
        for output in outputs:
            if isinstance(output, ComputePlan):
                problem = problem_from_json(output.problem)
                made = make_plan(problem)
                answer = Proposal(output.epoch, problem, made) if isinstance(made, Plan) else made
                self.obey(self.coordinator.planned(output.epoch, answer, self.now))
            else:
                super().obey([output])

    def do(self, name: str, outputs: Sequence[FollowerOutput]) -> None:
        kept = [one for one in outputs if not (isinstance(one, LoadShard) and name in self.stuck)]
        super().do(name, kept)

    @property
    def ring(self) -> set[str]:
        return set(self.proposals[-1].plan.order)

    def assert_serving(self, *names: str) -> None:
        assert self.closed == {}
        assert set(self.serving) >= set(names)
        assert len({self.serving[name] for name in names}) == 1
        assert {self.machines[name].state for name in names} == {State.READY}


WAYS = [("kafila", "latency"), ("kafila", "throughput"), ("kafila", "paper"), ("memory", ""), ("uniform", "")]


@pytest.mark.parametrize("small", NAMES)
@pytest.mark.parametrize(("strategy", "objective"), WAYS)
def test_member_when_it_offers_too_little_then_it_is_an_entry_point_and_the_others_serve(
    strategy: str, objective: str, small: str
) -> None:
    party = MeasuredParty(strategy=strategy, objective=objective)
    party.offers[small] = SMALL
    party.form()
    party.assert_serving(*NAMES)
    assert small not in party.ring
    if objective in ("paper", ""):  # the planner itself leaves nobody out
        assert small in party.aside[small]


def test_member_when_it_offers_too_little_and_all_are_required_then_the_session_says_that_it_cant() -> None:
    party = MeasuredParty(require="all")
    party.offers["cyd"] = SMALL
    party.form()
    fault = party.closed["ada"]
    assert fault is not None
    assert (fault.member, fault.code, "cyd offers 100 bytes" in fault.sentence) == ("cyd", "FAILED_PRECONDITION", True)


@pytest.mark.parametrize("objective", ["latency", "paper"])
def test_session_when_all_together_offer_too_little_then_it_waits_for_another_member(objective: str) -> None:
    party = MeasuredParty(wanted=0, objective=objective)
    party.offers |= {"ada": 1500, "bob": 1500, "cyd": SMALL}
    party.form()
    party.obey(party.coordinator.start(party.now))
    party.pump()
    party.advance(10 * MEASURE_DEADLINE_S)
    assert party.closed == {}
    for name in NAMES:
        assert party.machines[name].state is State.FORMING
        assert "short" in party.machines[name].shortage
    party.offers["dan"] = 9000
    party.join("dan")
    party.measure("dan")
    party.assert_serving(*NAMES, "dan")
    assert {follower.shortage for follower in party.machines.values()} == {""}


def test_session_when_all_together_offer_too_little_and_all_places_are_taken_then_it_ends_in_words() -> None:
    party = MeasuredParty(objective="paper")
    party.offers = dict.fromkeys(NAMES, SMALL)
    party.form()
    assert {fault.code for fault in party.closed.values() if fault} == {"FAILED_PRECONDITION"}


def test_member_when_it_never_measures_then_the_others_serve_and_it_may_come_later() -> None:
    party = MeasuredParty()
    party.silent.add("cyd")
    party.form()
    assert party.serving == {}
    party.advance(MEASURE_DEADLINE_S)
    party.assert_serving("ada", "bob")
    assert party.aside["cyd"] == "cyd did not measure itself in time"
    party.silent.clear()
    party.measure("cyd")
    party.assert_serving(*NAMES)


@pytest.mark.parametrize("deaf", NAMES[1:])
def test_member_when_it_answers_on_no_link_then_the_others_serve_without_it(deaf: str) -> None:
    party = MeasuredParty(objective="paper")
    party.broken |= {frozenset((deaf, other)) for other in NAMES if other != deaf}
    party.form()
    assert party.serving == {}
    party.advance(LINK_DEADLINE_S)
    party.assert_serving(*{*NAMES} - {deaf})
    assert "could not be linked in time" in party.aside[deaf]


def test_link_when_it_breaks_for_good_while_serving_then_one_of_its_ends_is_set_aside() -> None:
    party = MeasuredParty(objective="paper")
    party.form()
    party.assert_serving(*NAMES)
    party.broken.add(frozenset(("bob", "cyd")))
    party.coordinator.unlinked("bob", "cyd", party.now)
    party.obey(party.coordinator.linked("cyd", "bob", "direct", 0.01, party.now))  # cyd says otherwise
    party.advance(LINK_DEADLINE_S)
    party.assert_serving("ada", "bob")
    assert party.ring == {"ada", "bob"}


@pytest.mark.parametrize("objective", ["paper", "latency", "throughput"])
def test_pair_when_no_frame_passes_between_the_two_then_the_planner_finds_a_ring_in_which_they_are_no_neighbours(
    objective: str,
) -> None:
    party = MeasuredParty(wanted=4, objective=objective)
    party.form()
    party.join("dan")
    party.measure("dan")
    party.assert_serving(*NAMES, "dan")
    party.broken.add(frozenset(("bob", "cyd")))
    party.accuse("bob", "cyd")
    party.accuse("cyd", "bob")
    party.assert_serving(*NAMES, "dan")
    assert party.removed == []
    assert frozenset(("bob", "cyd")) not in party.proposals[-1].ring
    assert objective != "paper" or (party.ring == {*NAMES, "dan"} and party.aside == {})


def test_member_when_it_denies_one_neighbour_after_the_other_then_it_is_set_aside_itself() -> None:
    party = MeasuredParty(wanted=4, objective="paper")
    party.form()
    party.join("dan")
    party.measure("dan")
    party.assert_serving(*NAMES, "dan")
    denied = []
    while "bob" in party.ring:
        edges = party.proposals[-1].edges(sorted(party.ring))
        denied.append(max(name for edge in edges if "bob" in edge for name in edge - {"bob"}))
        party.coordinator.unlinked("bob", denied[-1], party.now)
        party.advance(LINK_DEADLINE_S)
    assert len(denied) <= 2
    assert "bob" in party.aside
    assert len(party.ring) >= 2


def test_member_when_it_breaks_the_rings_rules_twice_then_it_is_set_aside_and_nobody_leaves() -> None:
    party = MeasuredParty(wanted=4, objective="paper")
    party.form()
    party.join("dan")
    party.measure("dan")
    party.assert_serving(*NAMES, "dan")
    misled = []
    while "bob" in party.ring:
        victim = party.proposals[-1].next_after("bob")
        misled.append(victim)
        fault = Fault("bob", "UNAVAILABLE", "bob broke the rules of the ring: a hidden state holds NaN")
        party.do(victim, party.machines[victim].misled(fault, party.now))
        party.coordinator.unlinked(victim, "bob", party.now)
        party.advance(LINK_DEADLINE_S)
    assert len(misled) <= 2
    assert "bob" in party.aside
    assert all(follower.state is not State.CLOSED for follower in party.machines.values())


def test_member_when_it_tells_a_successor_nothing_then_the_others_are_planned_before_they_give_up() -> None:
    assert RETELL_DEADLINE_S < REPLAN_DEADLINE_S
    party = MeasuredParty(wanted=4, objective="paper")
    party.form()
    party.join("dan")
    party.measure("dan")
    party.silent.add("dan")
    party.leave("ada")
    party.advance(RETELL_DEADLINE_S)
    party.assert_serving("bob", "cyd")


@pytest.mark.parametrize("stuck", NAMES[1:])
def test_member_when_it_never_loads_then_the_others_serve_without_it(stuck: str) -> None:
    party = MeasuredParty(objective="paper")
    party.stuck.add(stuck)
    party.form()
    assert party.serving == {}
    party.advance(FETCH_SILENCE_S)
    party.assert_serving(*{*NAMES} - {stuck})
    assert stuck not in party.ring
    assert "neither fetched nor loaded" in party.aside[stuck]


@pytest.mark.parametrize("step", ["measuring", "loading"])
def test_host_when_it_fails_itself_then_it_steps_down_and_the_others_serve_under_a_successor(step: str) -> None:
    party = MeasuredParty(objective="paper")
    (party.silent if step == "measuring" else party.stuck).add("ada")
    party.form()
    party.advance(MEASURE_DEADLINE_S)
    assert party.coordinator.name == "bob"
    if step == "measuring":  # while it forms the successor waits for as many as were wanted
        party.join("dan")
        party.measure("dan")
    assert set(party.closed) == {"ada"}
    assert set(party.serving) >= {"bob", "cyd"}


def test_member_when_it_says_that_it_cant_then_the_others_serve_without_it() -> None:
    """A full disk, an MLX that can't be imported, a plan that it refuses: each member tells it of itself."""
    party = MeasuredParty(objective="paper")
    party.stuck.add("cyd")
    party.form()
    party.do("cyd", party.machines["cyd"].failed_here("RESOURCE_EXHAUSTED", "cyd's disk is full"))
    party.pump()
    party.leave("cyd")
    assert set(party.closed) == {"cyd"}
    assert party.serving["ada"] == party.serving["bob"]
    assert party.stopped["ada"].sentence == "cyd's disk is full"
