"""A driver with everything around it played by small real classes: the channel, the network, the stage."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from kafila_proto import ring_pb2
from kafila_sidecar.net.candidates import HOST, Candidate
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.session.channel.events import Event, HostChanged, MemberJoined, MemberRemoved, MessageFrom
from kafila_sidecar.session.coordination.effects import Fault, Proposal
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.driving.changes import Change
from kafila_sidecar.session.driving.driver import SessionDriver
from kafila_sidecar.session.driving.jobs import Progress, StageDriver
from kafila_sidecar.session.driving.links import StandingLinks
from kafila_sidecar.session.driving.turns import Turns
from kafila_sidecar.session.membership.members import Member, Replanning
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.weights.format.ranges import Ranges

ENTRY = {"memory_bytes": 1e9, "mapping": "endpoint-independent", "filtering": "endpoint-independent", "rtt_s": 0.01}
MODEL = {
    "blocks": 4,
    "block_bytes": 1000,
    "embed_bytes": 100,
    "unembed_bytes": 100,
    "norm_bytes": 10,
    "tied": False,
    "kv_bytes_per_token_per_block": 8,
}
TERMS = PlanningTerms(members_wanted=0, model=MODEL, context_tokens=64, concurrency=1, require=("all",))


def member(name: str, index: int) -> Member:
    return Member(name, b"", name.encode(), b"", mailbox=index + 1, index=index)


class PlayedChannel:
    """What a driver sees of a channel. A test changes the membership, and says what others say."""

    def __init__(self, me: str, *names: str) -> None:
        self.self_name = me
        self.founder = self.host = names[0]
        self.members = tuple(member(name, index) for index, name in enumerate(names))
        self.takeovers = 0
        self.away: tuple[str, ...] = ()
        self.moves = 0
        self.has_room = True
        self.replanning = Replanning.AUTO
        self.keeper_of_room = ""
        self.keeper = SimpleNamespace(rests_s=0.0)
        self.note: str | None = None
        self.terms = ring_pb2.SessionTerms(model="m")
        self.sent: list[ring_pb2.Control] = []
        self.votes: list[str] = []
        self.admits = True
        self.joining = "open"
        self.code: Code | None = None
        self.removals: list[tuple[str, str]] = []
        self.untold: asyncio.Queue[Event] = asyncio.Queue()

    @property
    def is_host(self) -> bool:
        return self.host == self.self_name

    async def events(self) -> AsyncIterator[Event]:
        while True:
            yield await self.untold.get()

    async def send(self, control: ring_pb2.Control) -> None:
        self.sent.append(control)

    def vote(self, successor: str) -> None:
        self.votes.append(successor)

    def remove(self, name: str, reason: str) -> None:
        self.removals.append((name, reason))
        self.members = tuple(one for one in self.members if one.name != name)
        self.tell(MemberRemoved(name, reason))

    def stand_still(self, is_alone: bool) -> None:
        self.admits = not is_alone

    def end_admission(self) -> None:
        self.admits = False

    # ---- For the test

    def tell(self, *events: Event) -> None:
        for one in events:
            self.untold.put_nowait(one)

    def says(self, sender: str, control: ring_pb2.Control) -> None:
        self.tell(MessageFrom(sender, control))

    def joins(self, name: str) -> None:
        self.members += (member(name, len(self.members)),)
        self.tell(MemberJoined(self.members[-1]))

    def succeeds(self, name: str) -> None:
        former, self.host = self.host, name
        self.takeovers += 1
        self.members = tuple(one for one in self.members if one.name != former)
        self.tell(MemberRemoved(former, "lost"), HostChanged(name))

    def bodies(self) -> list[str | None]:
        return [control.WhichOneof("body") for control in self.sent]


class NoNetwork:
    """Links are never made; the driver is told of them by others."""

    def __init__(self) -> None:
        self.network: dict[str, Any] = {}
        self.dialled: set[str] = set()  # at present

    def start(self, changed: Callable[[], None]) -> None: ...

    def stop(self) -> None: ...

    def candidates(self) -> Sequence[Candidate]:
        return [Candidate(HOST, "192.0.2.1", 4711, 1)]

    def announced(self, peer: str, candidates: Sequence[Candidate]) -> None: ...
    def moved(self, peers: Iterable[str]) -> None: ...

    async def entry(self) -> dict[str, Any]:
        return dict(self.network)

    async def dial(self, peer: str, candidates: Sequence[Candidate]) -> Link:
        self.dialled.add(peer)
        try:
            await asyncio.Event().wait()
        finally:
            self.dialled.discard(peer)
        raise AssertionError


@dataclass
class PlayedStage:
    loaded: list[int] = field(default_factory=list)
    serving: int = 0
    faults: list[Fault] = field(default_factory=list)
    active_sequences: int = 0
    answers_here: int = 0
    weight_bytes: int = 0

    async def answered(self) -> None:
        while self.answers_here:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    async def load(self, proposal: Proposal, progress: Progress) -> None:
        progress("loading", 0, 0)
        self.loaded.append(proposal.epoch)

    def serve(self, proposal: Proposal) -> None:
        self.serving = proposal.epoch

    async def stop(self, fault: Fault) -> None:
        self.serving = 0
        self.faults.append(fault)

    async def close(self, fault: Fault) -> None:
        await self.stop(fault)
        self.weight_bytes = 0


class PlayedShares:
    """The weights of a member that holds none, and hears of the others'."""

    def __init__(self) -> None:
        self.told: dict[str, Mapping[int, Ranges]] = {}

    def holds(self) -> ring_pb2.Holds | None:
        return None

    def learn(self, member: str, held: Mapping[int, Ranges]) -> None:
        self.told[member] = held

    def members(self, names: Collection[str]) -> None:
        self.told = {name: held for name, held in self.told.items() if name in names}


class RunningDriver:
    """One driver that runs."""

    def __init__(
        self, me: str, *names: str, network: NoNetwork | None = None, stage: StageDriver | None = None
    ) -> None:
        self.channel = PlayedChannel(me, *names)
        self.stage = PlayedStage()
        self.network = network or NoNetwork()
        self.turns = Turns()
        self.shares = PlayedShares()
        self.changes: list[Change] = []
        self.knows_the_model = True
        self.slept_s = 0.0
        self.driver = SessionDriver(
            channel=self.channel,  # type: ignore[arg-type]
            network=self.network,
            standing=StandingLinks(),
            stage=stage or self.stage,
            turns=self.turns,
            terms=lambda: TERMS if self.knows_the_model else None,
            shares=self.shares,
            measure=self._measure,
            packings=self._packings,
            changed=self.changes.append,
            outer=lambda: asyncio.get_running_loop().time() + self.slept_s,
        )
        self.running = asyncio.create_task(self.driver.run())

    async def _measure(self) -> tuple[dict[str, Any], str]:
        return dict(ENTRY), "cpu"

    async def _packings(self) -> dict[int, dict[str, Any]]:
        return {}

    async def settled(self) -> None:
        """Everything that was told has been handled."""
        for _ in range(50):
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)

    @property
    def state(self) -> State:
        return self.driver.follower.state

    @property
    def epoch(self) -> int:
        assert self.driver.follower.proposal is not None
        return self.driver.follower.proposal.epoch

    async def end(self) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])
        if not self.running.cancelled() and (error := self.running.exception()):
            raise error
