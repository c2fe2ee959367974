"""The admitter's decisions and every member's view of them, joined by a pump with a hand-moved clock."""

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from sidecar.session.authority import FETCH_SILENCE_S, LINK_DEADLINE_S, MEASURE_DEADLINE_S, Authority, Terms
from sidecar.session.events import (
    Accuse,
    Ask,
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
    Vote,
)
from sidecar.session.hearings import HEARING_S, MOST_FALSE_ALARMS
from sidecar.session.machine import (
    ASK_AFTER_S,
    GONE_WITHOUT_LINK_S,
    LINK_SILENT_S,
    TAKEOVER_DEADLINE_S,
    Machine,
)
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
    """Everybody's cores and the wires between them; messages to one member may overtake each other.

    The membership log is played: it names another admitter once more than half of the others voted for it.
    """

    def __init__(self, *, wanted: int = 3, blocks: int = 3, shuffle: Random | None = None) -> None:
        self.now = 0.0
        self._terms = Terms(members_wanted=wanted, model={"blocks": blocks}, context_tokens=64, concurrency=1)
        self.authority = Authority(name="ada", terms=self._terms, now=self.now)
        self.takeovers = 0
        self.votes: dict[str, str] = {}
        self.removed: list[tuple[str, str]] = []
        self.mute: set[str] = set()  # members that are there, and say nothing
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
        self.machines[name] = Machine(name=name, admitter=self.authority.name, members=members)
        self._log(members)

    def measure(self, name: str) -> None:
        self._obey(self.authority.measured(name, {"memory_bytes": 1}, self.now))
        self.pump()

    def kill(self, name: str) -> None:
        self.dead.add(name)
        del self.machines[name]

    def leave(self, name: str) -> None:
        del self.machines[name]
        self._tell(lambda machine: machine.left(name, self.now))
        self.pump()
        if name == self.authority.name:
            self.succeed()
        else:
            self._obey(self.authority.lost(name, "left"))
        self.pump()

    def succeed(self) -> None:
        """The first in order that lives takes over."""
        former = self.authority
        members = tuple(member for member in former.members if member != former.name)
        heir = next(member for member in members if member in self.machines)
        self.takeovers += 1
        started = self.machines[heir].state is not State.FORMING
        self.authority = Authority(
            name=heir, terms=self._terms, now=self.now, takeovers=self.takeovers, started=started
        )
        self.votes = {}
        self._log(members)
        for name in self.machines:
            self.measure(name)
        for one, other in [sorted(pair) for pair in self.links if not pair & (self.dead | {former.name})]:
            self._obey(self.authority.linked(one, other, "direct", 0.01, self.now))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        if self.authority.name not in self.dead:
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

    def accuse(self, accuser: str, accused: str) -> None:
        """A member's word; the accused hears of it and says something, if it can."""
        self.authority.accused(accused, accuser, self.now)
        if accused in self.machines and accused not in self.mute:
            self._obey(self.authority.heard(accused, self.now))
        self.pump()

    def _log(self, members: Sequence[str], *, anew: bool = False) -> None:
        admitter = self.authority.name
        self._tell(lambda machine: machine.members_changed(members, admitter, self.now))
        self._obey(self.authority.members_changed(members, self.now, anew=anew))
        self.pump()

    def _vote(self, voter: str, successor: str) -> None:
        self.votes[voter] = successor
        agreed = list(self.votes.values()).count(successor)
        if 2 * agreed > len(self.authority.members) - 1 and self.authority.name not in self.machines:
            self.succeed()

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
                case Remove(member, reason):
                    self.removed.append((member, reason))
                    left = tuple(m for m in self.authority.members if m != member)
                    self._log(left, anew=reason == "removed")
                case Dissolve(fault):
                    self._tell(lambda machine, f=fault: machine.close(f))

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
                case Accuse(_, fault, True) if name == self.authority.name:
                    self._obey(self.authority.lost(fault.member, "lost"))
                case Accuse(_, fault, True):
                    self.accuse(name, fault.member)
                case Accuse(_, fault, False):
                    self._tell(lambda machine, f=fault: machine.failed(f, self.now))
                case Vote(successor):
                    self._vote(name, successor)
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


def test_session_when_a_member_leaves_before_it_measured_then_it_waits_for_another_without_a_deadline() -> None:
    party = Party()
    party.measure("ada")
    party.join("bob")
    party.measure("bob")
    party.join("cyd")
    party._log(("ada", "bob"))
    party.advance(MEASURE_DEADLINE_S + 1)
    assert set(party.closed) == {"cyd"}
    party.join("dan")
    party.measure("dan")
    assert set(party.serving) == {"ada", "bob", "dan"}


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


def test_session_when_the_admitter_dies_then_the_next_in_order_succeeds_and_the_rest_serve_on() -> None:
    party = formed()
    before = party.serving["bob"]
    party.kill("ada")
    party.advance(3.0)
    assert party.authority.name == "bob"
    assert {name: machine.admitter for name, machine in party.machines.items()} == {"bob": "bob", "cyd": "bob"}
    assert "ada" in party.stopped["cyd"].sentence
    assert party.closed == {}
    assert party.serving["bob"] == party.serving["cyd"] > before
    assert [stage["member"] for stage in party.proposals[-1].stages] == ["bob", "cyd"]


def test_session_when_the_admitter_leaves_then_the_next_in_order_succeeds() -> None:
    party = formed()
    party.leave("ada")
    assert party.authority.name == "bob"
    assert party.serving["bob"] == party.serving["cyd"] > 1
    assert party.closed == {}


def test_session_when_the_admitter_dies_while_forming_then_the_successor_waits_on_for_members() -> None:
    party = Party(wanted=3)
    party.measure("ada")
    party.join("bob")
    party.measure("bob")
    party.kill("ada")
    party.advance(3.0)
    assert party.machines["bob"].state is State.FORMING
    party.advance(TAKEOVER_DEADLINE_S + MEASURE_DEADLINE_S)
    for name in ("cyd", "dan"):
        party.join(name)
        party.measure(name)
    assert set(party.serving) == {"bob", "cyd", "dan"}


def test_session_when_admitter_and_successor_die_together_then_too_few_are_left_and_it_closes_in_words() -> None:
    party = formed()
    party.kill("ada")
    party.kill("bob")
    party.advance(3.0)
    assert party.closed == {}
    party.advance(TAKEOVER_DEADLINE_S)
    fault = party.closed["cyd"]
    assert fault is not None
    assert fault.member == "ada"
    assert "too few members" in fault.sentence


def test_session_when_the_successor_dies_too_then_the_one_after_it_takes_over_and_removes_it() -> None:
    party = Party(wanted=4)
    party.measure("ada")
    for name in ("bob", "cyd", "dan"):
        party.join(name)
        party.measure(name)
    assert set(party.serving) == {"ada", "bob", "cyd", "dan"}
    party.kill("ada")
    party.kill("bob")
    party.advance(3.0)
    assert party.authority.name == "cyd"
    party.advance(LINK_SILENT_S)
    assert ("bob", "lost") in party.removed
    assert party.serving["cyd"] == party.serving["dan"]
    assert [stage["member"] for stage in party.proposals[-1].stages] == ["cyd", "dan"]


def test_machine_when_the_admitter_is_heard_again_then_it_waits_for_its_plan_and_does_not_close() -> None:
    party = formed()
    machine = party.machines["cyd"]
    machine.departed("ada", party.now)
    outputs = machine.handle_timer(party.now + 3, {"ada": 3.0, "bob": 0.1})
    assert [type(output) for output in outputs] == [StopServing, Vote]
    machine.heard("ada", party.now)
    machine.returned("ada")
    assert machine.handle_timer(party.now + TAKEOVER_DEADLINE_S + 1, {"ada": 0.1, "bob": 0.1}) == []
    party._obey(party.authority.doubted("cyd", party.now))
    party.pump()
    assert party.serving["cyd"] == party.serving["ada"]


def test_machine_when_the_admitter_said_goodbye_then_its_late_messages_change_nothing() -> None:
    machine = formed().machines["cyd"]
    assert Vote("bob") in machine.left("ada", 0.0)
    machine.heard("ada", 0.1)
    assert machine.is_gone("ada")


def test_member_when_accused_and_heard_then_it_stays_and_all_begin_anew() -> None:
    party = formed()
    before = party.serving["ada"]
    party.accuse("bob", "cyd")
    assert party.removed == []
    assert party.serving["cyd"] == party.serving["ada"] > before
    party.advance(HEARING_S)
    assert party.removed == []


def test_member_when_accused_and_not_heard_then_it_is_removed() -> None:
    party = formed()
    party.mute.add("cyd")
    party.accuse("bob", "cyd")
    party.advance(HEARING_S / 2)
    assert party.removed == []
    party.advance(HEARING_S / 2)
    assert party.removed == [("cyd", "lost")]


def test_accuser_when_it_lies_again_and_again_then_it_is_removed_and_nobody_else() -> None:
    party = formed()
    for _ in range(MOST_FALSE_ALARMS):
        party.accuse("cyd", "bob")
    assert party.removed == [("cyd", "removed")]
    assert "cyd" in party.closed
    assert [stage["member"] for stage in party.proposals[-1].stages] == ["ada", "bob"]


def test_admitter_when_doubted_again_and_again_by_one_member_then_that_one_is_removed() -> None:
    party = formed()
    for _ in range(MOST_FALSE_ALARMS):
        party._obey(party.authority.doubted("cyd", party.now))
        party.pump()
    assert party.removed == [("cyd", "removed")]
    assert party.authority.name == "ada"


@pytest.mark.parametrize(("accused", "accuser"), [("ada", "bob"), ("zoe", "bob"), ("bob", "zoe"), ("bob", "bob")])
def test_accusation_when_it_makes_no_sense_then_nothing_is_kept(accused: str, accuser: str) -> None:
    party = formed()
    party.accuse(accuser, accused)
    party.advance(HEARING_S)
    assert party.removed == []
    assert party.authority._hearings.next_timer() is None


def test_member_when_it_stands_by_and_is_kicked_then_the_epoch_changes_all_the_same() -> None:
    party = Party(wanted=2)
    party.measure("ada")
    party.join("bob")
    party.measure("bob")
    party.join("cyd")
    party.measure("cyd")
    before = party.serving["ada"]
    assert "cyd" not in party.loads
    party._obey([Remove("cyd", "removed")])
    assert party.serving["ada"] == party.serving["bob"] > before
    assert "cyd" in party.closed


def test_member_when_it_fails_then_it_goes_and_the_others_serve_on() -> None:
    party = formed()
    party._do("bob", party.machines["bob"].failed_here("RESOURCE_EXHAUSTED", "bob's disk is full"))
    party.pump()
    fault = party.closed["bob"]
    assert fault is not None
    assert fault.sentence == "bob's disk is full"
    assert {party.stopped[name].sentence for name in ("ada", "cyd")} == {"bob's disk is full"}
    party.leave("bob")
    assert party.serving["ada"] == party.serving["cyd"]


def test_machine_when_only_the_rendezvous_lost_somebody_then_it_is_no_death() -> None:
    party = formed()
    machine = party.machines["ada"]
    machine.departed("bob", party.now)
    assert machine.handle_timer(party.now + 60, {"bob": 0.1, "cyd": 0.1}) == []


def test_machine_when_the_rendezvous_misses_who_has_no_link_then_it_asks_and_the_answer_counts() -> None:
    machine = Machine(name="dan", admitter="ada", members=("ada", "bob", "cyd", "dan"))
    for member in ("ada", "bob", "cyd"):
        machine.departed(member, 10.0)
        machine.heard(member, 10.1)  # was on its way
    assert machine.handle_timer(10.0 + ASK_AFTER_S - 0.1, {}) == []
    assert machine.handle_timer(10.0 + ASK_AFTER_S, {"bob": 0.1}) == [Ask("ada"), Ask("cyd")]
    assert machine.handle_timer(10.0 + ASK_AFTER_S + 0.1, {"bob": 0.1}) == []
    machine.heard("ada", 10.0 + ASK_AFTER_S + 0.2)
    outputs = machine.handle_timer(10.0 + GONE_WITHOUT_LINK_S, {"bob": 0.1})
    assert [output.fault.member for output in outputs if isinstance(output, Accuse)] == ["cyd"]
    assert not machine.is_gone("ada")
    assert machine.handle_timer(99.0, {"bob": 0.1}) == []


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
