"""A seat hears its members: what each may say, and that no word of one brings down the rest."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from google.protobuf.message import DecodeError

from kafila_proto import ring_pb2
from kafila_sidecar.net import candidates as reach
from kafila_sidecar.net.candidates import HOST, Candidate
from kafila_sidecar.session.channel.events import Doubted, MemberDeparted
from kafila_sidecar.session.coordination import speech
from kafila_sidecar.session.coordination.effects import Fault
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.coordination.turns import MOST_NEWS_WAITING
from tests.sidecar.session.driver_world import ENTRY, Table
from tests.support.fuzz import INPUTS, mutations

Seated = Callable[..., Awaitable[Table]]


@pytest.fixture
async def seated() -> AsyncIterator[Seated]:
    tables: list[Table] = []

    async def sit(me: str, *names: str) -> Table:
        tables.append(Table(me, *names))
        await tables[-1].settled()
        return tables[-1]

    yield sit
    for table in tables:
        await table.end()


def capability(name: str, **changes: object) -> ring_pb2.Control:
    entry = {**ENTRY, "name": name, **changes}
    return ring_pb2.Control(capability=ring_pb2.Capability(member_json=json.dumps(entry), device="cpu"))


def link(peer: str) -> ring_pb2.Control:
    return ring_pb2.Control(link=ring_pb2.LinkReport(peer=peer, up=True, path="direct", rtt_s=0.01))


async def formed(seated: Seated) -> Table:
    """The host's seat of three, with everybody linked and a plan that stands."""
    table = await seated("ada", "ada")
    for name in ("bob", "cyd"):
        table.channel.joins(name)
        table.channel.says(name, capability(name))
    await table.settled()
    table.driver.start()
    await table.settled()
    table.channel.says("bob", link("ada"))
    table.channel.says("cyd", link("bob"))
    table.channel.says("ada", link("cyd"))
    await table.settled()
    await asyncio.sleep(0.3)
    assert table.state in (State.FETCHING, State.READY)
    return table


async def test_host_when_all_measured_and_linked_then_it_plans_and_lets_fetch(seated: Seated) -> None:
    table = await formed(seated)
    assert {"candidates", "capability", "plan", "go"} <= set(table.channel.bodies())
    assert table.stage.loaded or table.driver.follower.loaded


async def test_member_when_another_says_that_the_session_is_over_then_only_the_host_is_believed(seated: Seated) -> None:
    table = await seated("cyd", "ada", "bob", "cyd")
    over = speech.fault(Fault("cyd", "INTERNAL", "the end"), "over")
    states = []
    for speaker in ("bob", "ada"):
        table.channel.says(speaker, over)
        await table.settled()
        states.append(table.state)
    assert states == [State.FORMING, State.CLOSED]


async def test_member_when_another_decides_like_a_host_then_dropped(seated: Seated) -> None:
    table = await seated("cyd", "ada", "bob", "cyd")
    plan = ring_pb2.PlanProposal(problem_json="{}", plan_json="{}")
    for control in (
        ring_pb2.Control(epoch=9, plan=plan),
        speech.may_fetch(9),
        speech.may_serve(9),
        ring_pb2.Control(measured=ring_pb2.Measured(trace_json='{"epoch": 1}')),
        speech.fault(Fault("ada", "INTERNAL", "ada is broken"), "failed"),
    ):
        table.channel.says("bob", control)
    await table.settled()
    assert table.state is State.FORMING
    assert table.driver.follower.proposal is None
    assert table.driver.roster.trace == {}


async def test_member_when_the_host_proposes_a_plan_that_is_none_then_it_goes_in_words(seated: Seated) -> None:
    for problem, plan in (("{}", "{}"), ("[" * 5000, "{}"), ('{"members": []}', '{"admitted": false}')):
        table = await seated("cyd", "ada", "bob", "cyd")
        proposal = ring_pb2.PlanProposal(problem_json=problem, plan_json=plan)
        table.channel.says("ada", ring_pb2.Control(epoch=1, plan=proposal))
        await table.settled()
        assert table.state is State.CLOSED
        assert table.driver.follower.fault is not None
        assert table.driver.follower.fault.code == "FAILED_PRECONDITION"
        assert table.channel.sent[-1].fault.kind == "failed"


async def test_member_when_accused_or_asked_for_then_it_shows_that_it_is_there(seated: Seated) -> None:
    table = await seated("cyd", "ada", "bob", "cyd")
    before = len(table.channel.sent)
    table.channel.says("bob", speech.fault(Fault("cyd", "UNAVAILABLE", "cyd was lost"), "lost"))
    table.channel.says("ada", ring_pb2.Control(ask=ring_pb2.Ask(member="cyd")))
    table.channel.says("ada", ring_pb2.Control(ask=ring_pb2.Ask(member="bob")))
    await table.settled()
    assert table.channel.sent[before:] == [ring_pb2.Control()] * 2
    assert table.state is State.FORMING


async def test_host_when_a_member_lies_about_another_then_the_accused_stays(seated: Seated) -> None:
    table = await formed(seated)
    for _ in range(3):
        table.channel.says("cyd", speech.fault(Fault("bob", "UNAVAILABLE", "bob was lost"), "lost"))
        await table.settled()
        table.channel.says("bob", link("cyd"))
        await table.settled()
    assert table.channel.removals == [("cyd", "removed")]
    assert [one.name for one in table.channel.members] == ["ada", "bob"]


async def test_host_when_members_doubt_it_then_it_plans_anew_and_removes_who_does_so_always(seated: Seated) -> None:
    table = await formed(seated)
    for _ in range(3):
        table.channel.tell(Doubted("bob"))
        await table.settled()
    assert table.channel.removals == [("bob", "removed")]
    assert table.state is not State.CLOSED


async def test_member_when_the_host_is_gone_then_it_votes_and_follows_the_successor(seated: Seated) -> None:
    table = await seated("cyd", "ada", "bob", "cyd")
    table.channel.tell(MemberDeparted("ada"))
    await asyncio.sleep(2.4)
    assert table.channel.votes == ["bob"]
    before = len(table.channel.sent)
    table.channel.succeeds("bob")
    await table.settled()
    assert table.driver.follower.admitter == "bob"
    assert table.driver.coordinator is None
    assert "capability" in table.channel.bodies()[before:]


async def test_member_when_it_is_the_successor_then_it_plans_for_those_who_are_left(seated: Seated) -> None:
    table = await seated("bob", "ada", "bob", "cyd")
    table.channel.says("ada", ring_pb2.Control(goodbye=ring_pb2.Goodbye()))
    await table.settled()
    assert table.channel.votes == ["bob"]
    table.channel.succeeds("bob")
    table.channel.says("cyd", capability("cyd"))
    await table.settled()
    table.driver.start()
    table.channel.says("cyd", link("bob"))
    table.channel.says("cyd", link("ada"))  # on its way when ada was removed
    await table.settled()
    await asyncio.sleep(0.3)
    plans = [control for control in table.channel.sent if control.HasField("plan")]
    assert plans
    assert plans[-1].epoch > 1 << 16
    assert [one["name"] for one in json.loads(plans[-1].plan.problem_json)["members"]] == ["bob", "cyd"]


async def test_member_when_it_is_removed_then_its_driver_closes(seated: Seated) -> None:
    table = await seated("cyd", "ada", "bob", "cyd")
    table.channel.remove("cyd", "removed")
    await table.settled()
    assert table.state is State.CLOSED
    assert table.driver.follower.fault is not None
    assert table.driver.follower.fault.code == "PERMISSION_DENIED"


async def test_driver_when_news_comes_quicker_than_it_can_be_handled_then_the_rest_waits_outside(
    seated: Seated,
) -> None:
    table = await seated("cyd", "ada", "bob", "cyd")
    for _ in range(2000):
        table.channel.says("bob", link("cyd"))
    most = 0
    while not table.channel._news.empty():
        most = max(most, table.driver._turns._queue.qsize())
        await asyncio.sleep(0)
    assert most <= MOST_NEWS_WAITING + 8


@pytest.mark.fuzz
async def test_driver_when_a_member_says_hostile_things_then_it_stays_as_it_is(seated: Seated) -> None:
    table = await formed(seated)
    samples = [
        *(capability("bob"), link("cyd"), speech.progress(1, "fetching", 1, 2), speech.may_serve(1)),
        speech.fault(Fault("zoe", "UNAVAILABLE", "zoe was lost"), "lost"),
        ring_pb2.Control(candidates=ring_pb2.Candidates(candidates=[ring_pb2.Candidate(kind="host", port=1)])),
        ring_pb2.Control(measured=ring_pb2.Measured(trace_json='{"epoch": 1, "output_tokens": 9, "stages": []}')),
    ]
    for name in ("bob", "cyd"):
        table.channel.says(name, ring_pb2.Control(candidates=reach.to_proto([Candidate(HOST, "192.0.2.2", 4711, 1)])))
        table.channel.says(name, speech.progress(table.epoch, "ready"))
    await table.settled()
    assert table.state is State.READY  # from here on nothing is waited for, so time alone ends nothing
    state, members = table.state, table.channel.members
    for number, data in enumerate(mutations([one.SerializeToString() for one in samples], seed=1, inputs=INPUTS)):
        try:
            control = ring_pb2.Control.FromString(data)
        except DecodeError:
            continue
        if control.HasField("fault") or control.HasField("goodbye"):
            continue  # it may go, or accuse; other tests say what follows
        table.channel.says("bob", control)
        if number % 100 == 0:
            await table.settled()
    await table.settled()
    assert (table.state, table.channel.members) == (state, members)
    assert set(table.driver.roster.seen) == {"ada", "bob", "cyd"}
    assert table.driver.coordinator is not None
    assert len(table.driver.coordinator._links) <= 3
    assert len(table.driver.roster.edges) <= 3
    assert set(table.driver.coordinator._heard) <= {"ada", "bob", "cyd"}
    epoch = table.epoch
    table.channel.remove("cyd", "left")  # whatever it told, the session can be planned again
    await table.settled()
    await asyncio.sleep(0.3)
    assert table.state in (State.LINKING, State.FETCHING)
    assert table.epoch > epoch


async def test_network_when_it_changes_then_the_planner_hears_of_it_and_plans_under_way_still_count(
    seated: Seated,
) -> None:
    table = await formed(seated)
    table.network.network = {"udp": False}
    table.driver.moved()
    await table.settled()
    told = [json.loads(said.capability.member_json) for said in table.channel.sent if said.HasField("capability")]
    assert told[-1] == {**told[0], "udp": False}
    assert table.state in (State.FETCHING, State.READY)
    table.channel.remove("cyd", "left")  # plans anew
    await table.settled()
    await asyncio.sleep(0.3)
    proposal = table.driver.follower.proposal
    assert proposal is not None
    assert {member.name: member.udp for member in proposal.problem.members}["ada"] is False


async def test_network_when_it_is_as_before_then_nothing_is_said(seated: Seated) -> None:
    table = await seated("ada", "ada")
    before = table.channel.bodies().count("capability")
    table.driver.moved()
    await table.settled()
    assert table.channel.bodies().count("capability") == before
