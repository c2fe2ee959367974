"""This machine's seat in one session: drives the two cores, and does what they ask for.

Everything that happens (news of the channel, a link that came up, a shard that is loaded, time) enters through one
queue and is handled one at a time, so the cores never see two things at once.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from kafila_proto import ring_pb2

from sidecar.errors import KafilaError
from sidecar.net import candidates as reach
from sidecar.net.link import Link
from sidecar.session import events as ev
from sidecar.session import news
from sidecar.session.authority import Authority
from sidecar.session.channel import Channel
from sidecar.session.correction import Served, look_for_better
from sidecar.session.edges import Edge
from sidecar.session.links import Links, Network
from sidecar.session.machine import Machine
from sidecar.session.planning import check_proposal, compute_plan
from sidecar.session.roster import Roster
from sidecar.session.states import State

log = logging.getLogger(__name__)

REPORT_EVERY_S = 0.5  # of a fetch's progress

Progress = Callable[[str, int, int], None]


class Stage(Protocol):
    """This machine's part in the present epoch; serving/stage.py is the one."""

    async def load(self, proposal: ev.Proposal, progress: Progress) -> None: ...
    def serve(self, proposal: ev.Proposal) -> None: ...
    async def stop(self, fault: ev.Fault) -> None: ...


class _Call:
    """Something that has to happen in the seat's own turn."""

    def __init__(self, run: Callable[[], Awaitable[None]]) -> None:
        self.run = run


class _LinkChanged:
    def __init__(self, peer: str, link: Link | None, error: KafilaError | None) -> None:
        self.peer, self.link, self.error = peer, link, error


class Seat:
    """One member's part in one session, from joining to leaving."""

    def __init__(
        self,
        *,
        channel: Channel,
        network: Network,
        stage: Stage,
        model: ev.Json,
        authority: Authority | None,
        measure: Callable[[], Awaitable[tuple[ev.Json, str]]],
        changed: Callable[[], None],
    ) -> None:
        self.channel = channel
        self.roster = Roster(member.name for member in channel.members)
        self.machine = Machine(
            name=channel.self_name, admitter=channel.host, members=[member.name for member in channel.members]
        )
        self.authority = authority
        self.links: Links | None = None
        self._network = network
        self._stage = stage
        self._model = model
        self._measure = measure
        self._changed = changed
        self._queue: asyncio.Queue[news.News | _LinkChanged | _Call] = asyncio.Queue()
        self._capability: ring_pb2.Capability | None = None
        self._served = Served()
        self.better_plan = ""  # a sentence, on the admitter, when served times show one
        self._loading: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    # ---- From outside

    async def run(self) -> None:
        """Until the session is closed. Cancelling leaves it."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self.links = Links(network=self._network, told=self._told_of_link, tasks=self._tasks)
                helpers = [self._tasks.create_task(self._listen()), self._tasks.create_task(self._measure_here())]
                self._introduce()
                while self.machine.state is not State.CLOSED:
                    await self._turn()
                for helper in helpers:
                    helper.cancel()
                await self.links.close()
        finally:
            await self._stage.stop(self.machine.fault or ev.Fault("", "UNAVAILABLE", "the session was left"))

    def start(self) -> None:
        """Go on with those who are present; admitter only."""
        self._soon(self._start)

    def leave(self) -> None:
        """Closes the session here; whoever runs the seat says goodbye on the channel afterwards."""
        self._soon(lambda: self._do(self.machine.close(None)))

    def broken(self, code: str, sentence: str) -> None:
        """This member's stage failed while serving."""
        self._soon(lambda: self._do(self.machine.failed_here(code, sentence)))

    def moved(self) -> None:
        """This member's candidates are others than before."""
        self._say_now(self._candidates())

    def tell(self, control: ring_pb2.Control) -> None:
        """Sends something to everybody, from outside the seat's own turn."""
        self._soon(lambda: self._say(control))

    # ---- The loop

    async def _turn(self) -> None:
        timers = [self.machine.next_timer(self._now), self.authority.next_timer() if self.authority else None]
        until = min((timer for timer in timers if timer is not None), default=self._now + 1.0)
        try:
            async with asyncio.timeout_at(until):
                item = await self._queue.get()
        except TimeoutError:
            item = None
        await self._handle(item)
        await self._on_timer()
        self._changed()

    async def _on_timer(self) -> None:
        links = self.links.up if self.links else {}
        await self._do(self.machine.handle_timer(self._now, {peer: link.silent_s() for peer, link in links.items()}))
        if self.authority:
            await self._obey(self.authority.handle_timer(self._now))

    async def _handle(self, item: news.News | _LinkChanged | _Call | None) -> None:
        match item:
            case news.MessageFrom(sender, control):
                await self._heard(sender, control)
            case news.MemberJoined():
                self._introduce()
                await self._members_changed()
            case news.MemberRemoved():
                await self._members_changed()
            case news.MemberDeparted(name):
                self.machine.departed(name, self._now)
            case news.MemberReturned(name):
                self.machine.returned(name)
            case news.RendezvousLost() if self.channel.terms.rendezvous_at_host:
                self.machine.departed(self.channel.host, self._now)
            case news.RendezvousBack():
                self.machine.returned(self.channel.host)
            case _LinkChanged():
                await self._link_changed(item.peer, item.link, item.error)
            case _Call():
                await item.run()

    # ---- What others say

    async def _heard(self, sender: str, control: ring_pb2.Control) -> None:
        """One control message; what only the admitter may say is dropped from anybody else."""
        body = control.WhichOneof("body")
        from_admitter = sender == self.machine.admitter
        match body:
            case "capability":
                await self._heard_capability(sender, control.capability)
            case "candidates" if sender != self.machine.name and self.links:
                self.links.learn(sender, control.candidates)
            case "link":
                await self._heard_link(sender, control.link)
            case "progress":
                progress = control.progress
                self.roster.progressed(sender, progress.doing, progress.fetched_bytes, progress.total_bytes)
                if self.authority:
                    await self._obey(self.authority.progressed(sender, control.epoch, progress.doing, self._now))
            case "fault":
                await self._heard_fault(sender, control.fault)
            case "goodbye" if sender != self.machine.name:
                await self._lost(ev.Fault(sender, "UNAVAILABLE", f"{sender} left the session"), "left")
            case "measured" if self.machine.proposal and sender == self.machine.proposal.head:
                self.roster.measured(control.measured.trace_json)
                self._correct(self.machine.proposal)
            case "plan" if from_admitter:
                await self._heard_plan(sender, control.epoch, control.plan)
            case "go" if from_admitter:
                await self._do(self.machine.may_fetch(control.epoch))
            case "ready" if from_admitter:
                await self._do(self.machine.may_serve(control.epoch))

    def _correct(self, proposal: ev.Proposal) -> None:
        """The admitter looks for a better plan, now and then."""
        served_s = self._served.add(self.roster.trace) if self.authority else None
        if served_s is not None:
            self._tasks.create_task(self._look_for_better(proposal, served_s), name="correct")

    async def _look_for_better(self, proposal: ev.Proposal, served_s: Mapping[str, float]) -> None:
        self.better_plan = await look_for_better(proposal, served_s)

    async def _heard_link(self, sender: str, report: ring_pb2.LinkReport) -> None:
        edge = Edge(report.path, report.rtt_s, report.punch_s, report.handshake_s) if report.up else None
        self.roster.linked(sender, report.peer, edge)
        if self.authority and edge:
            await self._obey(self.authority.linked(sender, report.peer, edge.path, edge.rtt_s, self._now))
        elif self.authority:
            self.authority.unlinked(sender, report.peer)

    async def _heard_capability(self, sender: str, capability: ring_pb2.Capability) -> None:
        try:
            entry = json.loads(capability.member_json)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or entry.get("name") != sender:
            log.warning("capability_refused member=%s", sender)
            return
        self.roster.measured_member(sender, capability.device, int(entry.get("memory_bytes") or 0))
        if self.authority:
            await self._obey(self.authority.measured(sender, entry, self._now))

    async def _heard_plan(self, sender: str, epoch: int, plan: ring_pb2.PlanProposal) -> None:
        try:
            proposal = await check_proposal(
                epoch,
                plan.problem_json,
                plan.plan_json,
                own=json.loads(self._capability.member_json) if self._capability else None,
                model=self._model,
                compute=sender != self.machine.name,
            )
        except KafilaError as error:
            await self._do(self.machine.failed_here(error.code, str(error)))
            return
        await self._do(self.machine.proposed(proposal))

    async def _heard_fault(self, sender: str, fault: ring_pb2.Fault) -> None:
        told = ev.Fault(fault.member, fault.code, fault.sentence)
        if fault.kind == "lost":
            await self._lost(told, "lost")
        elif sender in (fault.member, self.machine.admitter):
            await self._do(self.machine.accused(told, lost=False, now=self._now))

    async def _lost(self, fault: ev.Fault, reason: str) -> None:
        await self._do(self.machine.accused(fault, lost=True, now=self._now))
        self.roster.gone(fault.member)
        if self.authority:
            await self._obey(self.authority.lost(fault.member, reason))

    async def _members_changed(self) -> None:
        members = [member.name for member in self.channel.members]
        self.roster.members(members)
        await self._do(self.machine.members_changed(members, self._now))
        if self.authority:
            await self._obey(self.authority.members_changed(members, self._now))

    async def _link_changed(self, peer: str, link: Link | None, error: KafilaError | None) -> None:
        if error is not None:
            await self._do(self.machine.failed_here(error.code, f"{self.machine.name} can't reach {peer}: {error}"))
            return
        report = ring_pb2.LinkReport(peer=peer, up=link is not None)
        if link is not None:
            report.path, report.rtt_s = link.path, link.rtt_s
            report.punch_s, report.handshake_s = link.punch_s, link.handshake_s
        self._say_now(ring_pb2.Control(epoch=self._epoch, link=report))

    # ---- What the cores ask for

    async def _do(self, outputs: Sequence[ev.FollowerOutput]) -> None:
        for output in outputs:
            match output:
                case ev.OpenLinks(_, peers) if self.links:
                    self.links.want(peers)
                case ev.LoadShard(proposal):
                    self._loading = self._tasks.create_task(self._load(proposal), name="load")
                case ev.Serve(proposal):
                    self._stage.serve(proposal)
                case ev.StopServing(fault):
                    await self._end_epoch(fault)
                case ev.Report(epoch, doing):
                    self._say_now(ring_pb2.Control(epoch=epoch, progress=ring_pb2.Progress(doing=doing)))
                case ev.Accuse(epoch, fault, lost):
                    self._say_now(ring_pb2.Control(epoch=epoch, fault=_fault(fault, "lost" if lost else "failed")))
                case ev.Closed(fault):
                    log.info("session_closed code=%s", fault.code if fault else "")

    async def _obey(self, outputs: Sequence[ev.AuthorityOutput]) -> None:
        for output in outputs:
            match output:
                case ev.ComputePlan(epoch, problem):
                    await self._do(self.machine.everybody_came())
                    self._tasks.create_task(self._plan(epoch, problem), name="plan")
                case ev.Propose(proposal):
                    plan = ring_pb2.PlanProposal(
                        problem_json=json.dumps(proposal.problem), plan_json=json.dumps(proposal.plan)
                    )
                    self._say_now(ring_pb2.Control(epoch=proposal.epoch, plan=plan))
                case ev.LetFetch(epoch):
                    self._say_now(ring_pb2.Control(epoch=epoch, go=ring_pb2.Go()))
                case ev.LetServe(epoch):
                    self._say_now(ring_pb2.Control(epoch=epoch, ready=ring_pb2.Ready()))
                case ev.Remove(member, reason) if any(known.name == member for known in self.channel.members):
                    await self.channel.remove(member, reason)
                case ev.Dissolve(fault):
                    self._say_now(ring_pb2.Control(fault=_fault(fault, "failed")))

    async def _plan(self, epoch: int, problem: ev.Json) -> None:
        assert self.authority is not None
        authority = self.authority
        try:
            plan = await compute_plan(problem)
        except KafilaError as error:
            refused = {"admitted": False, "reason": str(error), "undersized": None}
            self._soon(lambda: self._obey(authority.planned(epoch, refused, self._now)))
            return
        self._soon(lambda: self._obey(authority.planned(epoch, plan, self._now)))

    async def _load(self, proposal: ev.Proposal) -> None:
        said, said_at = "", 0.0

        def progress(doing: str, here_bytes: int, total_bytes: int) -> None:
            nonlocal said, said_at
            if doing != said or here_bytes == total_bytes or self._now - said_at >= REPORT_EVERY_S:
                said, said_at = doing, self._now
                self._say_progress(proposal.epoch, doing, here_bytes, total_bytes)

        try:
            await self._stage.load(proposal, progress)
        except KafilaError as error:
            code, sentence = error.code, str(error)
            self._soon(lambda: self._do(self.machine.failed_here(code, sentence)))
            return
        self._soon(lambda: self._do(self.machine.shard_loaded(proposal.epoch)))

    async def _end_epoch(self, fault: ev.Fault) -> None:
        """One teardown ends before the next set-up starts."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
            self._loading = None
        await self._stage.stop(fault)

    # ---- What happens here

    async def _listen(self) -> None:
        async for item in self.channel.events():
            await self._queue.put(item)

    async def _measure_here(self) -> None:
        try:
            entry, device = await self._measure()
        except KafilaError as error:
            code, sentence = error.code, f"{self.machine.name} could not be measured: {error}"
            self._soon(lambda: self._do(self.machine.failed_here(code, sentence)))
            return
        named = json.dumps({**entry, "name": self.machine.name})
        self._capability = ring_pb2.Capability(member_json=named, device=device)
        self._say_now(ring_pb2.Control(capability=self._capability))

    def _introduce(self) -> None:
        """Where this member is, and what it measured, for those who don't know yet."""
        self._say_now(self._candidates())
        if self._capability:
            self._say_now(ring_pb2.Control(capability=self._capability))

    def _candidates(self) -> ring_pb2.Control:
        return ring_pb2.Control(candidates=reach.to_proto(self._network.candidates()))

    async def _start(self) -> None:
        if self.authority:
            await self._obey(self.authority.start(self._now))

    def _told_of_link(self, peer: str, link: Link | None, error: KafilaError | None) -> None:
        self._queue.put_nowait(_LinkChanged(peer, link, error))

    def _say_progress(self, epoch: int, doing: str, here_bytes: int, total_bytes: int) -> None:
        progress = ring_pb2.Progress(doing=doing, fetched_bytes=here_bytes, total_bytes=total_bytes)
        self._say_now(ring_pb2.Control(epoch=epoch, progress=progress))

    def _say_now(self, control: ring_pb2.Control) -> None:
        """To everybody, this member included, which hears it in a turn of its own."""
        self._soon(lambda: self._say(control))

    async def _say(self, control: ring_pb2.Control) -> None:
        await self.channel.send(control)
        await self._heard(self.machine.name, control)

    def _soon(self, run: Callable[[], Awaitable[None]]) -> None:
        self._queue.put_nowait(_Call(run))

    @property
    def _epoch(self) -> int:
        return self.machine.proposal.epoch if self.machine.proposal else 0

    @property
    def _now(self) -> float:
        return self._loop.time()


def _fault(fault: ev.Fault, kind: str) -> ring_pb2.Fault:
    return ring_pb2.Fault(member=fault.member, kind=kind, code=fault.code, sentence=fault.sentence)
