"""A driver hears its members: what each may say, and that no word of one brings down the rest."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from google.protobuf.message import DecodeError

from kafila_proto import ring_pb2
from kafila_sidecar.net import candidates as reach
from kafila_sidecar.net.candidates import HOST, Candidate
from kafila_sidecar.session.channel.events import Doubted, Knocked, MemberDeparted, MemberReturned, Spoke
from kafila_sidecar.session.coordination import speech
from kafila_sidecar.session.coordination.effects import Fault, Proposal
from kafila_sidecar.session.coordination.states import Ending, State
from kafila_sidecar.session.driving.turns import MOST_EVENTS_WAITING
from kafila_sidecar.session.membership.members import Replanning
from kafila_sidecar.session.rendezvous.attendance import RendezvousBack, RendezvousLost
from tests.sidecar.session.driver_world import ENTRY, RunningDriver
from tests.support.fuzz import INPUTS, mutations
from tests.support.plans import plan_of, problem_of, stage

StartDriver = Callable[..., Awaitable[RunningDriver]]


@pytest.fixture
async def start_driver() -> AsyncIterator[StartDriver]:
    running: list[RunningDriver] = []

    async def start(me: str, *names: str) -> RunningDriver:
        running.append(RunningDriver(me, *names))
        await running[-1].settled()
        return running[-1]

    yield start
    for driven in running:
        await driven.end()


HERE = None  # the body of what only shows that somebody is there


def capability(name: str, **changes: object) -> ring_pb2.Control:
    entry = {**ENTRY, "name": name, **changes}
    return ring_pb2.Control(capability=ring_pb2.Capability(member_json=json.dumps(entry), device="cpu"))


def link(peer: str) -> ring_pb2.Control:
    return ring_pb2.Control(link=ring_pb2.LinkReport(peer=peer, up=True, path="direct", rtt_s=0.01))


async def hosting(start_driver: StartDriver, *names: str) -> RunningDriver:
    """ada's driver, with these for members."""
    driven = await start_driver("ada", "ada")
    for name in names:
        driven.channel.joins(name)
    await driven.settled()
    return driven


def ring_of(*names: str) -> Proposal:
    """A plan with one block a member."""
    stages = [stage(name, block, block + 1) for block, name in enumerate(names)]
    return Proposal(1, problem_of(*names), plan_of(stages))


async def formed(start_driver: StartDriver) -> RunningDriver:
    """The host's driver of three, with everybody linked and a plan that stands."""
    driven = await start_driver("ada", "ada")
    for name in ("bob", "cyd"):
        driven.channel.joins(name)
        driven.channel.says(name, capability(name))
    await driven.settled()
    driven.driver.start()
    await driven.settled()
    driven.channel.says("bob", link("ada"))
    driven.channel.says("cyd", link("bob"))
    driven.channel.says("ada", link("cyd"))
    await driven.settled()
    await asyncio.sleep(0.3)
    assert driven.state in (State.FETCHING, State.READY)
    return driven


async def test_host_when_all_measured_and_linked_then_it_plans_and_lets_fetch(start_driver: StartDriver) -> None:
    driven = await formed(start_driver)
    assert {"candidates", "capability", "plan", "go"} <= set(driven.channel.bodies())
    assert driven.stage.loaded or driven.driver.follower.loaded


async def test_member_when_another_says_that_the_session_is_over_then_only_the_host_is_believed(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("cyd", "ada", "bob", "cyd")
    over = speech.fault(Fault("cyd", "INTERNAL", "the end"), "over")
    states = []
    for speaker in ("bob", "ada"):
        driven.channel.says(speaker, over)
        await driven.settled()
        states.append(driven.state)
    assert states == [State.FORMING, State.CLOSED]


async def test_member_when_another_decides_like_a_host_then_dropped(start_driver: StartDriver) -> None:
    driven = await start_driver("cyd", "ada", "bob", "cyd")
    plan = ring_pb2.PlanProposal(problem_json="{}", plan_json="{}")
    for control in (
        ring_pb2.Control(epoch=9, plan=plan),
        speech.may_fetch(9),
        speech.may_serve(9),
        ring_pb2.Control(measured=ring_pb2.Measured(trace_json='{"epoch": 1}')),
        speech.fault(Fault("ada", "INTERNAL", "ada is broken"), "failed"),
    ):
        driven.channel.says("bob", control)
    await driven.settled()
    assert driven.state is State.FORMING
    assert driven.driver.follower.proposal is None
    assert driven.driver.roster.trace == {}


async def test_member_when_the_host_proposes_a_plan_that_is_none_then_it_goes_in_words(
    start_driver: StartDriver,
) -> None:
    for problem, plan in (("{}", "{}"), ("[" * 5000, "{}"), ('{"members": []}', '{"admitted": false}')):
        driven = await start_driver("cyd", "ada", "bob", "cyd")
        proposal = ring_pb2.PlanProposal(problem_json=problem, plan_json=plan)
        driven.channel.says("ada", ring_pb2.Control(epoch=1, plan=proposal))
        await driven.settled()
        assert driven.state is State.CLOSED
        assert driven.driver.follower.fault is not None
        assert driven.driver.follower.fault.code == "FAILED_PRECONDITION"
        assert driven.channel.sent[-1].fault.kind == "failed"


async def test_member_when_accused_or_asked_for_then_it_shows_that_it_is_there(start_driver: StartDriver) -> None:
    driven = await start_driver("cyd", "ada", "bob", "cyd")
    before = len(driven.channel.sent)
    driven.channel.says("bob", speech.fault(Fault("cyd", "UNAVAILABLE", "cyd was lost"), "lost"))
    driven.channel.says("ada", ring_pb2.Control(ask=ring_pb2.Ask(member="cyd")))
    driven.channel.says("ada", ring_pb2.Control(ask=ring_pb2.Ask(member="bob")))
    await driven.settled()
    assert driven.channel.sent[before:] == [ring_pb2.Control()] * 2
    assert driven.state is State.FORMING


async def test_host_when_a_member_lies_about_another_then_the_accused_stays(start_driver: StartDriver) -> None:
    driven = await formed(start_driver)
    for _ in range(3):
        driven.channel.says("cyd", speech.fault(Fault("bob", "UNAVAILABLE", "bob was lost"), "lost"))
        await driven.settled()
        driven.channel.says("bob", link("cyd"))
        await driven.settled()
    assert driven.channel.removals == [("cyd", "removed")]
    assert [one.name for one in driven.channel.members] == ["ada", "bob"]


async def test_host_when_members_doubt_it_then_it_plans_anew_and_removes_who_does_so_always(
    start_driver: StartDriver,
) -> None:
    driven = await formed(start_driver)
    for _ in range(3):
        driven.channel.tell(Doubted("bob"))
        await driven.settled()
    assert driven.channel.removals == [("bob", "removed")]
    assert driven.state is not State.CLOSED


async def test_member_when_the_host_is_gone_then_it_votes_and_follows_the_successor(start_driver: StartDriver) -> None:
    driven = await start_driver("cyd", "ada", "bob", "cyd")
    driven.channel.tell(MemberDeparted("ada"))
    await asyncio.sleep(2.4)
    assert driven.channel.votes == ["bob"]
    before = len(driven.channel.sent)
    driven.channel.succeeds("bob")
    await driven.settled()
    assert driven.driver.follower.host == "bob"
    assert driven.driver.coordinator is None
    assert "capability" in driven.channel.bodies()[before:]


async def test_member_when_it_hears_the_host_by_the_removal_of_who_it_voted_for_then_it_votes_for_nobody_else(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("dan", "ada", "bob", "cyd", "dan")
    driven.channel.tell(MemberDeparted("ada"))
    await asyncio.sleep(2.4)
    assert driven.channel.votes == ["bob"]
    driven.channel.tell(Spoke("ada"))
    driven.channel.remove("bob", "removed")
    await driven.settled()
    assert driven.channel.votes == ["bob"]


async def test_member_of_two_when_the_host_that_it_misses_knocks_then_it_ends_its_part_to_come_back(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("bob", "ada", "bob")
    driven.channel.tell(MemberDeparted("ada"))
    await asyncio.sleep(2.4)
    assert driven.channel.votes == ["bob"]
    assert driven.driver.follower.ending is None
    driven.channel.tell(Knocked("ada"))
    await driven.settled()
    assert driven.state is State.CLOSED
    assert driven.driver.follower.ending is Ending.LOST


async def test_member_when_its_machine_slept_then_it_listens_before_it_holds_anybody_to_be_lost(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("cyd", "ada", "bob", "cyd")
    driven.slept_s = 3600.0
    driven.channel.tell(MemberDeparted("ada"))
    await asyncio.sleep(2.4)
    assert driven.channel.votes == []
    driven.channel.tell(MemberReturned("ada"))
    await driven.settled()
    assert not driven.driver.follower.liveness.is_gone("ada")


async def test_host_when_it_hears_too_few_then_it_asks_all_and_removes_nobody(start_driver: StartDriver) -> None:
    driven = await hosting(start_driver, "bob", "cyd", "dan", "eve")
    for name in ("bob", "cyd", "dan"):
        driven.channel.tell(MemberDeparted(name))
    await asyncio.sleep(5.0)
    asked = [control.ask.member for control in driven.channel.sent if control.HasField("ask")]
    assert asked[-1] == "eve"
    assert driven.channel.removals == []
    driven.channel.says("eve", ring_pb2.Control())
    driven.channel.says("dan", ring_pb2.Control())
    await asyncio.sleep(2.2)
    assert sorted(driven.channel.removals) == [("bob", "lost"), ("cyd", "lost")]


async def test_member_when_its_stage_finds_wrong_frames_then_everybody_hears_whose_they_are(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("cyd", "ada", "bob", "cyd")
    driven.driver.follower.state = State.READY
    driven.turns.stage_misled("bob", "bob sent a state that holds NaN")
    await driven.settled()
    told = [control.fault for control in driven.channel.sent if control.HasField("fault")]
    assert [(one.kind, one.member, one.sentence) for one in told] == [
        ("misbehaves", "bob", "bob sent a state that holds NaN")
    ]


async def test_host_when_two_members_complain_of_one_then_it_goes(start_driver: StartDriver) -> None:
    driven = await hosting(start_driver, "bob", "cyd", "dan")
    complaint = speech.fault(Fault("bob", "INTERNAL", "bob sent a state that holds NaN"), "misbehaves")
    coordinator = driven.driver.coordinator
    assert coordinator is not None
    coordinator._course.proposal = ring_of("ada", "bob", "cyd", "dan")
    driven.channel.says("cyd", complaint)
    await driven.settled()
    assert driven.channel.removals == []
    coordinator._course.proposal = ring_of("ada", "cyd", "bob", "dan")
    driven.channel.says("dan", complaint)
    await driven.settled()
    assert driven.channel.removals == [("bob", "removed")]


async def test_member_when_it_becomes_the_host_then_it_plans_from_what_it_heard_as_a_member(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("bob", "ada", "bob", "cyd", "dan")
    for name in ("ada", "cyd", "dan"):
        driven.channel.says(name, capability(name))
    driven.channel.says("cyd", link("bob"))
    driven.channel.says("dan", speech.fault(Fault("cyd", "INTERNAL", "is not the host"), "aside"))
    driven.channel.says("ada", speech.fault(Fault("dan", "UNAVAILABLE", "dan could not be linked"), "aside"))
    driven.channel.says("ada", speech.begun())
    await driven.settled()
    driven.channel.succeeds("bob")
    driven.channel.says("cyd", ring_pb2.Control())
    await driven.settled()
    await asyncio.sleep(0.3)
    plan = next(control.plan for control in driven.channel.sent if control.HasField("plan"))
    problem = json.loads(plan.problem_json)
    assert [one["name"] for one in problem["members"]] == ["bob", "cyd"]
    assert [one["between"] for one in problem["edges"]] == [["bob", "cyd"]]


async def test_member_when_it_is_the_successor_then_it_plans_for_those_who_are_left(start_driver: StartDriver) -> None:
    driven = await start_driver("bob", "ada", "bob", "cyd")
    driven.channel.says("ada", ring_pb2.Control(goodbye=ring_pb2.Goodbye()))
    await driven.settled()
    assert driven.channel.votes == ["bob"]
    driven.channel.succeeds("bob")
    driven.channel.says("cyd", capability("cyd"))
    await driven.settled()
    driven.driver.start()
    driven.channel.says("cyd", link("bob"))
    driven.channel.says("cyd", link("ada"))  # on its way when ada was removed
    await driven.settled()
    await asyncio.sleep(0.3)
    plans = [control for control in driven.channel.sent if control.HasField("plan")]
    assert plans
    assert plans[-1].epoch > 1 << 16
    assert [one["name"] for one in json.loads(plans[-1].plan.problem_json)["members"]] == ["bob", "cyd"]


async def test_member_when_it_is_removed_then_its_driver_closes(start_driver: StartDriver) -> None:
    driven = await start_driver("cyd", "ada", "bob", "cyd")
    driven.channel.remove("cyd", "removed")
    await driven.settled()
    assert driven.state is State.CLOSED
    assert driven.driver.follower.fault is not None
    assert driven.driver.follower.fault.code == "PERMISSION_DENIED"


async def test_member_when_another_was_removed_just_before_it_then_it_closes_for_its_own_reason(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("cyd", "ada", "bob", "cyd")
    driven.channel.remove("bob", "removed")
    driven.channel.remove("cyd", "lost")
    await driven.settled()
    assert driven.driver.follower.ending is Ending.LOST


@pytest.mark.parametrize(("me", "said"), [("cyd", 1), ("ada", 0)])
async def test_member_when_another_was_removed_then_a_host_without_a_link_to_it_hears_that_it_knows(
    start_driver: StartDriver, me: str, said: int
) -> None:
    """Else, were it lost next, the host could not know that it never voted with who is gone."""
    driven = await start_driver(me, "ada", "bob", "cyd", "dan")
    before = driven.channel.bodies().count(HERE)
    driven.channel.remove("bob", "lost")
    await driven.settled()
    assert driven.channel.bodies().count(HERE) - before == said


async def test_driver_when_events_come_quicker_than_it_can_be_handled_then_the_rest_waits_outside(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("cyd", "ada", "bob", "cyd")
    for _ in range(2000):
        driven.channel.says("bob", link("cyd"))
    most = 0
    while not driven.channel.untold.empty():
        most = max(most, driven.turns._queue.qsize())
        await asyncio.sleep(0)
    assert most <= MOST_EVENTS_WAITING + 8


@pytest.mark.fuzz
async def test_driver_when_a_member_says_hostile_things_then_it_stays_as_it_is(start_driver: StartDriver) -> None:
    driven = await formed(start_driver)
    samples = [
        *(capability("bob"), link("cyd"), speech.progress(1, "fetching", 1, 2), speech.may_serve(1)),
        speech.fault(Fault("zoe", "UNAVAILABLE", "zoe was lost"), "lost"),
        ring_pb2.Control(candidates=ring_pb2.Candidates(candidates=[ring_pb2.Candidate(kind="host", port=1)])),
        ring_pb2.Control(measured=ring_pb2.Measured(trace_json='{"epoch": 1, "output_tokens": 9, "stages": []}')),
    ]
    for name in ("bob", "cyd"):
        driven.channel.says(name, ring_pb2.Control(candidates=reach.to_proto([Candidate(HOST, "192.0.2.2", 4711, 1)])))
        driven.channel.says(name, speech.progress(driven.epoch, "ready"))
    await driven.settled()
    assert driven.state is State.READY  # from here on nothing is waited for, so time alone ends nothing
    state, members = driven.state, driven.channel.members
    for number, data in enumerate(mutations([one.SerializeToString() for one in samples], seed=1, inputs=INPUTS)):
        try:
            control = ring_pb2.Control.FromString(data)
        except DecodeError:
            continue
        if control.HasField("fault") or control.HasField("goodbye"):
            continue  # it may go, or accuse; other tests say what follows
        driven.channel.says("bob", control)
        if number % 100 == 0:
            await driven.settled()
    await driven.settled()
    assert (driven.state, driven.channel.members) == (state, members)
    assert set(driven.driver.roster.seen) == {"ada", "bob", "cyd"}
    assert driven.driver.coordinator is not None
    assert len(driven.driver.coordinator._mesh._up) <= 3
    assert len(driven.driver.roster.edges) <= 3
    assert set(driven.driver.coordinator._course.waits._heard) <= {"ada", "bob", "cyd"}
    epoch = driven.epoch
    driven.channel.remove("cyd", "left")  # whatever it told, the session can be planned again
    await driven.settled()
    await asyncio.sleep(0.3)
    assert driven.state in (State.LINKING, State.FETCHING)
    assert driven.epoch > epoch


async def test_network_when_it_changes_then_the_planner_hears_of_it_and_plans_under_way_still_count(
    start_driver: StartDriver,
) -> None:
    driven = await formed(start_driver)
    driven.network.network = {"udp": False}
    driven.turns.network_moved()
    await driven.settled()
    told = [json.loads(said.capability.member_json) for said in driven.channel.sent if said.HasField("capability")]
    assert told[-1] == {**told[0], "udp": False}
    assert driven.state in (State.FETCHING, State.READY)
    driven.channel.remove("cyd", "left")  # plans anew
    await driven.settled()
    await asyncio.sleep(0.3)
    proposal = driven.driver.follower.proposal
    assert proposal is not None
    assert {member.name: member.udp for member in proposal.problem.members}["ada"] is False


async def test_network_when_it_is_as_before_then_nothing_is_said(start_driver: StartDriver) -> None:
    driven = await start_driver("ada", "ada")
    before = driven.channel.bodies().count("capability")
    driven.turns.network_moved()
    await driven.settled()
    assert driven.channel.bodies().count("capability") == before


async def test_driver_when_members_draw_weights_then_both_ends_want_a_link_until_that_is_over(
    start_driver: StartDriver,
) -> None:
    driven = await formed(start_driver)
    wanted = driven.driver._links

    async def after(sender: str, *sources: str) -> frozenset[str]:
        driven.channel.says(sender, speech.draws(sources))
        await driven.settled()
        return frozenset().union(*wanted._also.values())

    me = driven.channel.self_name
    assert await after("bob", me, "cyd") == {"bob"}
    assert await after("cyd", "bob") == {"bob"}
    driven.turns.say(speech.draws(["cyd"]))
    await driven.settled()
    assert frozenset().union(*wanted._also.values()) == {"bob", "cyd"}
    assert await after("bob") == {"cyd"}


async def test_driver_when_a_member_tells_what_it_holds_then_that_is_known_until_it_is_gone(
    start_driver: StartDriver,
) -> None:
    driven = await formed(start_driver)
    held = ring_pb2.Holds(files=[ring_pb2.HeldFile(file=1, starts=[8], ends=[16])])
    driven.channel.says("bob", ring_pb2.Control(holds=held))
    await driven.settled()
    assert {
        name: {file: list(spans) for file, spans in files.items()} for name, files in driven.shares.told.items()
    } == {"bob": {1: [(8, 16)]}}
    driven.channel.remove("bob", "lost")
    await driven.settled()
    assert not driven.shares.told


async def test_driver_when_a_member_waits_for_a_source_then_people_see_for_what_and_how_quickly_it_went(
    start_driver: StartDriver,
) -> None:
    driven = await formed(start_driver)
    driven.channel.says("bob", speech.progress(driven.epoch, "fetching", 5, 10, 2.5, "the model host answers 503"))
    await driven.settled()
    seen = driven.driver.roster.seen["bob"]
    assert (seen.fetched_bytes, seen.rate_bytes_per_s, seen.waits_for) == (5, 2.5, "the model host answers 503")
    driven.channel.says("bob", speech.progress(driven.epoch, "loading"))
    await driven.settled()
    assert (seen.rate_bytes_per_s, seen.waits_for) == (0.0, "")


async def test_member_when_it_does_not_know_the_model_yet_then_a_plan_is_not_for_it(start_driver: StartDriver) -> None:
    host = await formed(start_driver)
    plan = next(control for control in host.channel.sent if control.HasField("plan"))
    driven = await start_driver("bob", "ada", "bob", "cyd")
    driven.knows_the_model = False
    driven.channel.says("ada", plan)
    await driven.settled()
    assert driven.driver.follower.proposal is None
    assert driven.state is State.FORMING


async def test_member_when_it_should_succeed_the_host_without_knowing_the_model_then_it_says_why_it_cant(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("bob", "ada", "bob")
    driven.knows_the_model = False
    driven.channel.succeeds("bob")
    await driven.settled()
    fault = driven.driver.follower.fault
    assert driven.state is State.CLOSED
    assert fault is not None
    assert "before bob had heard what the model consists of" in fault.sentence


# ---- Leaving, and what becomes of a better plan


async def test_leave_when_nothing_runs_then_it_goes_at_once(start_driver: StartDriver) -> None:
    driven = await formed(start_driver)
    driven.driver.leave()
    await driven.settled()
    assert (driven.state, driven.driver.follower.ending) == (State.CLOSED, Ending.LEFT)


@pytest.mark.parametrize("how", ["asked again", "at once"])
async def test_leave_when_answers_run_then_it_serves_on_until_it_is_asked_for_again(
    start_driver: StartDriver, how: str
) -> None:
    driven = await formed(start_driver)
    driven.stage.active_sequences = 1
    if how == "asked again":
        driven.driver.leave()
        await driven.settled()
        assert driven.state is not State.CLOSED
        assert "leaving" in driven.channel.bodies()
    driven.driver.leave(at_once=how == "at once")
    await driven.settled()
    assert driven.driver.follower.ending is Ending.LEFT


async def test_leave_when_the_host_cant_do_without_then_it_is_said_and_nobody_leaves(start_driver: StartDriver) -> None:
    driven = await start_driver("bob", "ada", "bob", "cyd")
    driven.stage.answers_here = 1
    driven.driver.leave()
    await driven.settled()
    needed = Fault("bob", "FAILED_PRECONDITION", "2.0 GB too little without bob")
    driven.channel.says("cyd", speech.fault(Fault("bob", "FAILED_PRECONDITION", "so says who is no host"), "needed"))
    await driven.settled()
    assert driven.driver.leaving.has_begun
    driven.channel.says("ada", speech.fault(needed, "needed"))
    await driven.settled()
    assert driven.state is not State.CLOSED
    assert driven.driver.leaving.kept_back == needed.sentence


async def test_leave_when_the_host_is_another_one_meanwhile_then_that_hears_of_it(start_driver: StartDriver) -> None:
    driven = await start_driver("cyd", "ada", "bob", "cyd")
    driven.stage.answers_here = 1
    driven.driver.leave()
    await driven.settled()
    driven.channel.succeeds("bob")
    await driven.settled()
    assert driven.channel.bodies().count("leaving") == 2


async def test_leave_when_the_member_is_out_before_its_answers_have_ended_then_nothing_waits_for_them(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("bob", "ada", "bob")
    driven.stage.answers_here = 1
    driven.driver.leave()
    await driven.settled()
    driven.driver.abort(Fault("bob", "UNAVAILABLE", "bob was lost"), Ending.LOST)
    await asyncio.wait_for(driven.running, 5)


async def test_better_plan_when_nobody_wants_to_hear_of_it_then_it_is_not_told(start_driver: StartDriver) -> None:
    driven = await formed(start_driver)
    driven.driver._advised("another division is better")
    driven.driver.rule(Replanning.NEVER)
    assert driven.driver.better_plan == ""
    driven.driver.rule(Replanning.ASK)
    assert driven.driver.better_plan == "another division is better"


async def test_member_when_the_rendezvous_is_away_or_misses_another_then_it_reaches_out_for_them(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("bob", "ada", "bob", "cyd")
    for name in ("ada", "cyd"):
        driven.channel.says(name, speech.candidates([Candidate(HOST, "192.0.2.2", 4711, 1)]))
    dialled = []
    for event in (MemberDeparted("cyd"), RendezvousLost(), RendezvousBack(), MemberReturned("cyd")):
        driven.channel.tell(event)
        await driven.settled()
        dialled.append(set(driven.network.dialled))
    assert dialled == [{"cyd"}, {"ada", "cyd"}, {"cyd"}, set()]


async def test_member_when_it_leaves_and_everybody_else_has_gone_then_it_serves_nobody_any_more(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("bob", "ada", "bob")
    driven.stage.active_sequences = 1
    driven.driver.leave()
    await driven.settled()
    assert driven.driver.follower.ending is None
    driven.channel.says("ada", ring_pb2.Control(goodbye=ring_pb2.Goodbye()))
    await driven.settled()
    assert driven.driver.follower.ending is Ending.LEFT
