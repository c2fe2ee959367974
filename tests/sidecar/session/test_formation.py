"""The admitter's decisions and every member's view of them, joined by a pump with a hand-moved clock."""

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from sidecar.session.authority import FETCH_SILENCE_S, LINK_DEADLINE_S, MEASURE_DEADLINE_S, Authority, Terms
from sidecar.session.events import (
    Accuse,
    AuthorityOutput,
    Closed,
    ComputePlan,
    Dissolve,
    Fault,
    FollowerOutput,
    LetFetch,
    LetServe,
    LoadShard,
    OpenLinks,
    Proposal,
    Propose,
    Remove,
    Report,
    Serve,
    StopServing,
)
from sidecar.session.machine import LINK_SILENT_S, Machine
from sidecar.session.states import State, Step, follow

NAMES = ("ada", "bob", "cyd")


def plan_for(problem: Any) -> dict[str, Any]:
    """One block a member, in the order of the problem."""
    members = [member["name"] for member in problem["members"]]
    if problem["model"]["blocks"] > 100:
        return {"admitted": False, "reason": "too large", "undersized": members[-1], "suggestions": ["a smaller model"]}
    stages = [{"member": name, "start": i, "end": i + 1} for i, name in enumerate(members)]
    return {"admitted": True, "head": members[0], "order": members, "stages": stages}


class Party:
    """Everybody's cores and the wires between them; messages to one member may overtake each other."""

    def __init__(self, *, wanted: int = 3, blocks: int = 3, shuffle: Random | None = None) -> None:
        self.now = 0.0
        terms = Terms(members_wanted=wanted, model={"blocks": blocks}, context_tokens=64, concurrency=1)
        self.authority = Authority(name="ada", terms=terms, now=self.now)
        self.machines: dict[str, Machine] = {"ada": Machine(name="ada", admitter="ada", members=("ada",))}
        self.links: set[frozenset[str]] = set()
        self.broken: set[frozenset[str]] = set()
        self.serving: dict[str, int] = {}
        self.stopped: dict[str, Fault] = {}
        self.closed: dict[str, Fault | None] = {}
        self.proposals: list[Proposal] = []
        self.loads: list[str] = []
        self.dead: set[str] = set()
        self._shuffle = shuffle
        self._queue: deque[tuple[str, Any]] = deque()

    def join(self, name: str) -> None:
        members = (*self.authority.members, name)
        self.machines[name] = Machine(name=name, admitter="ada", members=members)
        self._log(members)

    def measure(self, name: str) -> None:
        self._obey(self.authority.measured(name, {"memory_bytes": 1}, self.now))
        self.pump()

    def kill(self, name: str) -> None:
        self.dead.add(name)
        del self.machines[name]

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self._obey(self.authority.handle_timer(self.now))
        for name, machine in list(self.machines.items()):
            for member in self.dead:
                machine.departed(member, self.now - seconds)
            silent = dict.fromkeys(self.dead, seconds)
            self._do(name, machine.handle_timer(self.now, silent))
        self.pump()

    def pump(self) -> None:
        while self._queue:
            index = self._shuffle.randrange(len(self._queue)) if self._shuffle else 0
            self._queue.rotate(-index)
            target, call = self._queue.popleft()
            if target in self.machines:
                self._do(target, call(self.machines[target]))

    def _log(self, members: Sequence[str]) -> None:
        self._tell(lambda machine: machine.members_changed(members, self.now))
        self._obey(self.authority.members_changed(members, self.now))
        self.pump()

    def _tell(self, call: Any) -> None:
        self._queue.extend((name, call) for name in self.machines)

    def _obey(self, outputs: Sequence[AuthorityOutput]) -> None:
        for output in outputs:
            match output:
                case ComputePlan(epoch, problem):
                    self._obey(self.authority.planned(epoch, plan_for(problem), self.now))
                case Propose(proposal):
                    self.proposals.append(proposal)
                    self._tell(lambda machine, p=proposal: machine.proposed(p))
                case LetFetch(epoch):
                    self._tell(lambda machine, e=epoch: machine.may_fetch(e))
                case LetServe(epoch):
                    self._tell(lambda machine, e=epoch: machine.may_serve(e))
                case Remove(member, _):
                    self._log(tuple(m for m in self.authority.members if m != member))
                case Dissolve(fault):
                    self._tell(lambda machine, f=fault: machine.accused(f, lost=False, now=self.now))

    def _do(self, name: str, outputs: Sequence[FollowerOutput]) -> None:
        for output in outputs:
            match output:
                case OpenLinks(_, peers):
                    for peer in peers:
                        pair = frozenset((name, peer))
                        if pair not in self.broken and not pair & self.dead:
                            self.links.add(pair)
                            self._obey(self.authority.linked(name, peer, "direct", 0.01, self.now))
                case LoadShard(proposal):
                    self.loads.append(name)
                    self._do(name, self.machines[name].shard_loaded(proposal.epoch))
                case Report(epoch, doing):
                    self._obey(self.authority.progressed(name, epoch, doing, self.now))
                case Serve(proposal):
                    self.serving[name] = proposal.epoch
                case StopServing(fault):
                    self.serving.pop(name, None)
                    self.stopped[name] = fault
                case Accuse(_, fault, lost):
                    if lost:
                        self._obey(self.authority.lost(fault.member, "lost"))
                    self._tell(lambda machine, f=fault, x=lost: machine.accused(f, lost=x, now=self.now))
                case Closed(fault):
                    self.closed[name] = fault


def formed(**kwargs: Any) -> Party:
    party = Party(**kwargs)
    party.measure("ada")
    for name in NAMES[1:]:
        party.join(name)
        party.measure(name)
    return party


def test_session_when_everybody_measured_then_all_serve_the_same_epoch() -> None:
    party = formed()
    assert {machine.state for machine in party.machines.values()} == {State.READY}
    assert len(set(party.serving.values())) == 1
    assert sorted(party.loads) == sorted(NAMES)


def test_session_when_one_measurement_is_missing_then_nobody_plans() -> None:
    party = Party()
    party.measure("ada")
    party.join("bob")
    party.join("cyd")
    party.measure("cyd")
    assert party.proposals == []
    assert party.authority.waiting_for() == ["bob"]


def test_session_when_links_stand_then_the_plan_carries_their_round_trips() -> None:
    last = formed().proposals[-1]
    assert {tuple(edge["between"]) for edge in last.problem["edges"]} == {
        ("ada", "bob"),
        ("ada", "cyd"),
        ("bob", "cyd"),
    }
    assert all(edge["rtt_s"] == 0.01 for edge in last.problem["edges"])


@pytest.mark.parametrize("seed", range(50))
def test_session_when_decisions_overtake_each_other_then_all_serve(seed: int) -> None:
    party = formed(shuffle=Random(seed))
    assert {machine.state for machine in party.machines.values()} == {State.READY}
    assert set(party.serving) == set(NAMES)


def test_session_when_a_link_is_missing_then_no_weight_moves_and_the_error_names_the_pair() -> None:
    party = Party()
    party.broken.add(frozenset(("bob", "cyd")))
    party.measure("ada")
    for name in NAMES[1:]:
        party.join(name)
        party.measure(name)
    assert party.loads == []
    party.advance(LINK_DEADLINE_S)
    assert set(party.closed) == set(NAMES)
    assert "bob to cyd" in party.closed["ada"].sentence  # type: ignore[union-attr]


def test_session_when_nobody_measures_then_it_gives_up_and_names_them() -> None:
    party = Party()
    party.measure("ada")
    party.join("bob")
    party.join("cyd")
    party.advance(MEASURE_DEADLINE_S)
    fault = party.closed["ada"]
    assert fault is not None
    assert (fault.code, "bob, cyd" in fault.sentence) == ("DEADLINE_EXCEEDED", True)


def test_session_when_the_model_is_too_large_then_everybody_hears_the_same_sentence() -> None:
    party = formed(blocks=1000)
    faults = {fault for fault in party.closed.values() if fault}
    assert set(party.closed) == set(NAMES)
    assert faults == {Fault("cyd", "FAILED_PRECONDITION", "too large: a smaller model")}


def test_session_when_a_stage_dies_then_all_stop_naming_it_and_plan_again_without_it() -> None:
    party = formed()
    before = party.serving["ada"]
    party.kill("bob")
    party.advance(3.0)
    assert "bob" in party.stopped["ada"].sentence
    assert "bob" in party.stopped["cyd"].sentence
    assert party.serving["ada"] == party.serving["cyd"] > before
    assert [stage["member"] for stage in party.proposals[-1].stages] == ["ada", "cyd"]


def test_session_when_the_admitter_dies_then_the_others_close_and_name_it() -> None:
    party = formed()
    party.kill("ada")
    party.advance(3.0)
    assert {name: fault.member for name, fault in party.closed.items() if fault} == {"bob": "ada", "cyd": "ada"}


def test_machine_when_only_the_rendezvous_lost_somebody_then_it_is_no_death() -> None:
    party = formed()
    machine = party.machines["ada"]
    machine.departed("bob", party.now)
    assert machine.handle_timer(party.now + 60, {"bob": 0.1, "cyd": 0.1}) == []


def test_machine_when_only_the_link_is_silent_then_it_waits_for_fifteen_seconds() -> None:
    machine = formed().machines["ada"]
    assert machine.handle_timer(20.0, {"bob": LINK_SILENT_S - 1}) == []
    assert [type(o) for o in machine.handle_timer(20.0, {"bob": LINK_SILENT_S})] == [StopServing, Accuse]


def test_session_when_started_early_then_those_present_form_it_and_a_latecomer_is_an_entry_point() -> None:
    party = Party(wanted=3)
    party.measure("ada")
    party.join("bob")
    party.measure("bob")
    assert party.proposals == []
    party._obey(party.authority.start(party.now))
    party.pump()
    assert set(party.serving) == {"ada", "bob"}
    party.join("cyd")
    party.measure("cyd")
    assert party.serving["cyd"] == party.serving["ada"]
    assert frozenset(("ada", "cyd")) in party.links
    assert "cyd" not in party.loads


def test_authority_when_a_member_stops_fetching_then_it_gives_up_and_names_it() -> None:
    party = Party()
    authority = party.authority
    for name in NAMES[1:]:
        authority.members_changed((*authority.members, name), 0.0)
    outputs: list[AuthorityOutput] = []
    for name in NAMES:
        outputs += authority.measured(name, {}, 0.0)
    ask = next(o for o in outputs if isinstance(o, ComputePlan))
    authority.planned(ask.epoch, plan_for(ask.problem), 0.0)
    for pair in (("ada", "bob"), ("bob", "cyd"), ("ada", "cyd")):
        outputs = authority.linked(*pair, "direct", 0.01, 0.0)
    again = next(o for o in outputs if isinstance(o, ComputePlan))
    outputs = authority.planned(again.epoch, plan_for(again.problem), 0.0)
    assert [type(o) for o in outputs] == [Propose, LetFetch]
    authority.progressed("ada", again.epoch, "ready", 0.0)
    authority.progressed("bob", again.epoch, "ready", 0.0)
    authority.progressed("cyd", again.epoch, "fetching", 100.0)
    assert authority.handle_timer(FETCH_SILENCE_S + 1) == []
    gave_up = authority.handle_timer(100.0 + FETCH_SILENCE_S + FETCH_SILENCE_S / 4 + 1)
    assert [(type(o), o.fault.member) for o in gave_up if isinstance(o, Dissolve)] == [(Dissolve, "cyd")]


def test_follow_when_a_step_has_no_place_then_it_raises() -> None:
    with pytest.raises(RuntimeError, match="ready"):
        follow(State.READY, Step.LOADED)
    with pytest.raises(RuntimeError, match="closed"):
        follow(State.CLOSED, Step.CLOSE)
