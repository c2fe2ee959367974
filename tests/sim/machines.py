"""Machines: a disk that stays, processes that come and go, and the seat in the session that each of them takes."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.machine.participation import Participation
from kafila_sidecar.machine.seat import Seat
from kafila_sidecar.machine.watching import Changes
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.session.calling.calling import Calling
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.comeback import come_back, take_leave
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.keeping.keeper import Keeper
from kafila_sidecar.session.opening import Local
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.session.rendezvous.mailbox import MailboxPlace
from kafila_sidecar.session.stay import CameBack, Told
from kafila_sidecar.session.turnstile import Turnstile
from tests.sim.clock import START_S, Life, SimLoop, SimProcess
from tests.sim.internet import SimInternet
from tests.sim.links import SimEndpoint, SimLinks
from tests.sim.members import VERSIONS, Hardware, NoRouter, channel_of, join_by_code, new_keeper, old_keeper, take_part
from tests.sim.model import Disk, SimModelHost, SimThread, SimWeights
from tests.sim.rendezvous import SimMailbox, SimServer, enter

JOIN_TRIES = 3
TYPES_AGAIN_S = 5.0
JOIN_AGAIN = "ask for the session's code and join again"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all machines stand in. `folder`: for the few real files. `codes`: what people could pass on now."""

    loop: SimLoop
    internet: SimInternet
    rendezvous: SimServer
    links: SimLinks
    host: SimModelHost
    folder: Path
    note: Callable[[str, str], None]
    codes: Callable[[], Iterator[Code]]
    call: Callable[[SimProcess, Sequence[bytes], Address], None]  # brings single datagrams to an address


@dataclass(eq=False, slots=True)
class SimMachine:
    """`is_out`: why its person wants, or gets, no place any more."""

    name: str
    number: int
    hardware: Hardware
    around: Surroundings
    disk: Disk = field(default_factory=Disk)
    process: SimProcess | None = None
    monitor: NoRouter = field(default_factory=NoRouter)
    seat: Seat | None = None
    participation: Participation | None = None  # the latest
    running: "asyncio.Task[Any] | None" = None
    member_name: str = ""
    is_out: str = ""
    out_since_s: float = 0.0
    reached_since_s: float | None = 0.0  # since when it runs, and most of the others who do reach it
    met_since_s: dict[str, float] = field(default_factory=dict)  # since when it and another one reach each other
    served_since_s: float | None = 0.0  # since when it runs, and reaches the rendezvous
    looked_at: int = 0  # how long its session's log was when it was last looked at
    has_ended: Participation | None = None  # the latest one that was seen to end
    told: str = ""  # what the timeline said last
    has_formed: bool = False  # it has heard of a plan

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.life is Life.RUNS

    @property
    def state(self) -> State | None:
        return self.participation.driver.follower.state if self.participation else None

    def start_as(self, place: MailboxPlace, replica: Replica) -> None:
        """A process that is a member already."""
        self._begin(self._live(self._new_process(), place, replica))

    def start(self) -> None:
        """A process that comes back by itself to where its machine was before, or whose person types the code."""
        process = self._new_process()
        keeper = old_keeper(self.around.folder, self.disk, process)
        self._begin(self._join(process) if keeper is None else self._return(process, keeper))

    def go_out(self, why: str) -> None:
        """From now on; what was said first counts."""
        if not self.is_out:
            self.is_out, self.out_since_s = why, self.around.loop.now - START_S

    def command(self, call: Callable[..., object], *arguments: object) -> None:
        """As this machine's person says; a hung process hears it when it wakes."""
        if self.process is not None and self.process.life is not Life.DEAD:
            self.around.loop.call_soon(call, *arguments, context=self.process.context)

    # ---- Private

    def _new_process(self) -> SimProcess:
        self.process = SimProcess(self.name, self.around.loop)
        self.monitor = NoRouter()
        self.seat = self.participation = None
        return self.process

    def look_at_network(self) -> None:
        """As the node does once a second: it is in another one."""
        self.monitor.moved()
        if self.seat is not None:
            self.seat.moved.set()

    def _begin(self, life: Any) -> None:
        assert self.process is not None
        self.running = self.process.start(life, f"machine {self.name}")

    async def _live(self, process: SimProcess, place: MailboxPlace, replica: Replica) -> None:
        mailbox = SimMailbox(self.around.rendezvous, process, place)
        await mailbox.attend()
        keeper = new_keeper(self.around.folder, self.disk, process, mailbox, replica)
        await self._sit(process, keeper, channel_of(mailbox, replica, keeper))

    async def _return(self, process: SimProcess, keeper: Keeper) -> None:
        await self._sit(process, keeper, None)
        if self._is_asked_to_join:
            await self._join(process)

    @property
    def _is_asked_to_join(self) -> bool:
        """The host that had let this machine in was none."""
        return not self.is_out and self.seat is not None and JOIN_AGAIN in self.seat.ended

    async def _join(self, process: SimProcess) -> None:
        """A person types the code, and again when that failed."""
        for _ in range(JOIN_TRIES):
            if (code := next(self.around.codes(), None)) is not None:
                try:
                    mailbox = await enter(self.around.rendezvous, process, code.room)
                    replica = await join_by_code(mailbox, code, self.name)
                except (KafilaError, TimeoutError) as error:
                    self.around.note(self.name, f"could not join: {error}")
                else:
                    self.around.note(self.name, f"joined as {replica.self_name}")
                    keeper = new_keeper(self.around.folder, self.disk, process, mailbox, replica)
                    await self._sit(process, keeper, channel_of(mailbox, replica, keeper))
                    if not self._is_asked_to_join:
                        return
            await asyncio.sleep(TYPES_AGAIN_S)
        self.go_out("it never came in")

    async def _sit(self, process: SimProcess, keeper: Keeper, channel: Channel | None) -> None:
        """As the node does for each session; `channel`: None for one that this machine was in before."""
        changes, calling, turnstile = Changes(), Calling(keeper, partial(self.around.call, process)), Turnstile()
        process.hears = calling.receive
        present = None if channel is None else self._take_part(process, channel, changes)

        async def back(known: Keeper, told: Told, moved: asyncio.Event) -> CameBack:
            self.around.note(self.name, "comes back")
            local = Local(self.around.folder, VERSIONS)
            return await come_back(
                keeper=known, local=local, told=told, moved=moved, turnstile=turnstile, calling=calling
            )

        async def take_part_again(came: CameBack, _: Keeper, noted: Changes) -> Participation:
            self.around.note(self.name, "is back" + (" and leads" if came.leads else ""))
            return self._take_part(process, came.channel, noted)

        async def leave_from_afar(known: Keeper) -> None:
            await take_leave(keeper=known, local=Local(self.around.folder, VERSIONS))

        self.seat = Seat(
            keeper=keeper,
            changes=changes,
            calling=calling,
            present=present,
            come_back=back,
            take_part=take_part_again,
            take_leave=leave_from_afar,
            spoken=str,
        )
        await self.seat.run()
        process.hears = None
        fault = self.participation.driver.follower.fault if self.participation else None
        self.around.note(self.name, f"its session is over: {fault.sentence if fault else 'left'}")

    def _take_part(self, process: SimProcess, channel: Channel, changes: Changes) -> Participation:
        around, hardware = self.around, self.hardware
        self.member_name, self.looked_at = channel.self_name, 0
        self.participation = take_part(
            channel,
            process=process,
            endpoint=SimEndpoint(around.links, process, self.number),
            monitor=self.monitor,
            weights=SimWeights(self.disk, around.host, hardware.bytes_per_s),
            thread=SimThread(around.loop, hardware.slowness),
            hardware=hardware,
            changes=changes,
        )
        return self.participation


def hardware_of(name: str, seed: int, memory_bytes: int) -> Hardware:
    """What a machine of this name has in a seed's world."""
    chance = random.Random(f"machine {seed} {name}")
    return Hardware(
        memory_bytes=memory_bytes,
        slowness=chance.choice((1.0, 1.5, 2.5)),
        bytes_per_s=chance.choice((1e8, 2e8, 4e8)),
        measuring_s=chance.choice((0.5, 1.5, 3.0)),
    )
