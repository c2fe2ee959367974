"""Lets a schedule happen: machines with their disks and processes, the people at them, and what is noted meanwhile."""

import asyncio
import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import KafilaError
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.session.coordination.leaving import DRAIN_DEADLINE_S
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.rendezvous.code import Code
from tests.sim.clock import START_S, Life, SimLoop, SimProcess
from tests.sim.internet import SimInternet, address_of
from tests.sim.links import SimLinks
from tests.sim.machines import SimMachine, Surroundings, hardware_of
from tests.sim.members import replicas
from tests.sim.model import SimModelHost, right_answer
from tests.sim.rendezvous import SimServer
from tests.sim.schedule import Asking, Happening, Schedule, What

LOOK_EVERY_S = 1.0
SETTLE_S = 150.0  # after the last fault: every session that can be ready is
NOTICED_S = 25.0  # after it: whatever was lost has been noticed
LAST_ANSWERS_S = 60.0
STARTS_S = 4.0
GOODBYES_S = 15.0  # once nobody waits for an answer any more
RESERVE_BYTES = 300_000_000  # beside the model


@dataclass(slots=True)
class Answer:
    """What became of a prompt. `began_s` is None while its session was not ready yet."""

    machine: str
    prompt: tuple[int, ...]
    most: int
    asked_s: float
    began_s: float | None = None
    ended_s: float | None = None
    text: str = ""
    is_complete: bool = False
    error: str = ""
    process: SimProcess | None = None  # its client's own machine's
    longest_pause_s: float = 0.0

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(int(word) for word in self.text.split())

    @property
    def right(self) -> tuple[int, ...]:
        """The ids that are shown, without the end token."""
        return tuple(token for token in right_answer(self.prompt, self.most) if token)


class World:
    """One run of one schedule."""

    def __init__(
        self, schedule: Schedule, loop: SimLoop, folder: Path, *, say: Callable[[str], None] | None = None
    ) -> None:
        """`folder`: for the few real files. `say` hears each line of the timeline."""
        self.schedule = schedule
        self.loop = loop
        self.chance = random.Random(f"world {schedule.seed}")
        self.internet = SimInternet(self.chance)
        self.rendezvous = SimServer(self.internet, loop, self.chance)
        self.links = SimLinks(self.internet, loop)
        self.host = SimModelHost(loop)
        self._around = Surroundings(
            loop, self.internet, self.rendezvous, self.links, self.host, folder, self.note, self._codes, self._call
        )
        self.machines: dict[str, SimMachine] = {}
        self.answers: list[Answer] = []
        self.judged: set[bytes] = set()  # entries of logs, by a law
        self.adopted_s: list[float] = []  # when a better plan was taken
        self.broken: list[str] = []  # laws that were broken on the way
        self.now_wrong_s: dict[str, float] = {}  # since when something is as it must not stay
        self._say = say
        self._trace = hashlib.blake2b(digest_size=16)
        self.settled_s = 0.0
        self.is_hopeless = False  # when it was settled, no session could be ready
        self.internet.listen(self._note_reach)

    @property
    def now_s(self) -> float:
        """Since the beginning."""
        return self.loop.now - START_S

    @property
    def trace(self) -> str:
        """Of all that happened."""
        copy = self._trace.copy()
        copy.update(f"{self.loop.steps} {self.links.carried}".encode())
        return copy.hexdigest()

    def note(self, who: str, what: str) -> None:
        line = f"{self.now_s:9.3f}  {who:<6} {what}"
        self._trace.update(line.encode())
        if self._say is not None:
            self._say(line)

    # ---- From the beginning to the end

    async def run(self, look: Callable[["World"], None]) -> None:
        """`look` is called each second."""
        self._form(self.schedule.members)
        for happening in self.schedule.happenings:
            self.loop.outside(happening.at_s, self._happens, happening)
        for asking in self.schedule.askings:
            self.loop.outside(asking.at_s, self._asks, asking)
        end_s = self.schedule.calm_at_s + SETTLE_S
        while self.now_s < end_s and not (self.now_s > self.schedule.calm_at_s + NOTICED_S and self._is_settled()):
            await asyncio.sleep(LOOK_EVERY_S)
            self._say_start()
            self._tell_states()
            look(self)
        self.settled_s = self.now_s

    async def ask_everybody(self) -> list[Answer]:
        """One more prompt at every machine whose session is ready; returns when all have ended."""
        before = len(self.answers)
        for machine in self.members_ready():
            self._asks(Asking(self.now_s, machine.name, (7, machine.number + 1), 5))
        deadline_s = self.now_s + LAST_ANSWERS_S
        while self.now_s < deadline_s and any(map(self.is_open, self.answers)):  # noqa: ASYNC110
            await asyncio.sleep(0.25)
        return self.answers[before:]

    async def leave_all(self) -> None:
        """Everybody goes; who is kept back by those who go too goes all the same."""
        for at_once, patience_s in ((False, DRAIN_DEADLINE_S), (True, GOODBYES_S)):
            here = [m for m in self.machines.values() if m.running is not None and not m.running.done() and m.runs]
            for machine in here:
                if machine.seat is not None:
                    machine.command(partial(machine.seat.leave, at_once=at_once))
            if here:
                await asyncio.wait([m.running for m in here if m.running is not None], timeout=patience_s)

    # ---- What laws ask

    def members_ready(self) -> list[SimMachine]:
        return [m for m in self.machines.values() if m.runs and m.state is State.READY]

    def is_open(self, answer: Answer) -> bool:
        """Whether its client still waits for it."""
        return answer.ended_s is None and answer.process is not None and answer.process.life is Life.RUNS

    def can_meet(self, one: SimMachine, other: SimMachine) -> bool:
        return one.runs and other.runs and self.internet.is_joined(one.name, other.name)

    def _is_settled(self) -> bool:
        """Everybody who could be a member again is, and no answer is under way, nor to be asked for yet."""
        if any(asking.at_s >= self.now_s for asking in self.schedule.askings):
            return False
        wanted = [m for m in self.machines.values() if m.runs and not m.is_out]
        return all(m.state is State.READY for m in wanted) and not any(self.is_open(a) for a in self.answers)

    # ---- Machines

    def _machine(self, name: str) -> SimMachine:
        number = len(self.machines)
        memory = self.schedule.memory_bytes[number % len(self.schedule.memory_bytes)] + RESERVE_BYTES
        hardware = hardware_of(name, self.schedule.seed, memory)
        machine = self.machines[name] = SimMachine(name, number, hardware, self._around)
        return machine

    def _form(self, names: Sequence[str]) -> None:
        """A session that these have joined already."""
        first = self.rendezvous.create(names[0])
        places = [first, *(self.rendezvous.join(name, first.room) for name in names[1:])]
        made = replicas(names, [place.mailbox for place in places], self.schedule.seed)
        for name, place, replica in zip(names, places, made, strict=True):
            self._machine(name).start_as(place, replica)

    def _say_start(self) -> None:
        """The person at the host does, and at its successor if that has not heard of a plan yet. Who has once heard of
        one need not type anything any more."""
        for machine in self.machines.values():
            session = machine.participation
            if session is None or not machine.runs or machine.has_formed:
                continue
            machine.has_formed = session.driver.follower.proposal is not None
            if session.channel.is_host and machine.state is State.FORMING and self.now_s >= STARTS_S:
                machine.command(session.driver.start)

    def _codes(self) -> Iterator[Code]:
        """What people could pass on now."""
        for machine in self.machines.values():
            session = machine.participation
            if machine.runs and session is not None and machine.state is not State.CLOSED and session.channel.code:
                yield session.channel.code

    def _call(self, caller: SimProcess, datagrams: Sequence[bytes], target: Address) -> None:
        """Without a link, and only where nothing is between the two."""
        callers = [machine for machine in self.machines.values() if machine.process is caller]
        called = [machine for machine in self.machines.values() if self._address(machine) == target]
        for one, other in zip(callers, called, strict=False):
            hears = other.process.hears if other.process is not None else None
            if other.process is not None and hears is not None and self.internet.reaches(one.name, other.name):
                at_s = self.loop.now + self.internet.delay_s(one.name, other.name)
                for datagram in datagrams:
                    other.process.call_at(at_s, hears, datagram, self._address(one))

    def _address(self, machine: SimMachine) -> Address:
        return address_of(machine.number, self.internet.network_of(machine.name))

    def _note_reach(self) -> None:
        """Who is reached by most of the others."""
        running = [machine for machine in self.machines.values() if machine.runs and not machine.is_out]
        for machine in self.machines.values():
            others = [other for other in running if other is not machine]
            reaching = sum(self.internet.is_joined(other.name, machine.name) for other in others)
            if not machine.runs or not 2 * reaching > len(others):
                machine.reached_since_s = None
            elif machine.reached_since_s is None:
                machine.reached_since_s = self.now_s
            is_served = machine.runs and self.internet.reaches_rendezvous(machine.name)
            if not is_served:
                machine.served_since_s = None
            elif machine.served_since_s is None:
                machine.served_since_s = self.now_s
            met = {other.name for other in others if self.can_meet(machine, other)}
            machine.met_since_s = {name: machine.met_since_s.get(name, self.now_s) for name in sorted(met)}

    def _life_changed(self) -> None:
        self._note_reach()
        self.links.look()
        self.rendezvous.look()

    # ---- Happenings

    def _happens(self, happening: Happening) -> None:
        self.note("", f"== {happening}")
        over = self._begin(happening)
        if over is not None:
            self.loop.outside(happening.for_s, self._is_over, happening, over)

    def _is_over(self, happening: Happening, over: Callable[[], None]) -> None:
        over()
        self.note("", f"== over: {happening}")

    def _begin(self, happening: Happening) -> Callable[[], None] | None:
        """Returns what ends it."""
        net, who = self.internet, happening.who
        match happening.what:
            case What.KILL:
                self._kill(who[0])
                self.machines[who[0]].go_out("killed")
                return None
            case What.RESTART:
                self._kill(who[0])
                return lambda: self._restart(who[0])
            case What.HANG:
                return self._hang(who[0])
            case What.OFFLINE:
                return self._take_offline(who[0])
            case What.MOVE:
                back_online = self._take_offline(who[0])
                return lambda: self._move(who[0], back_online)
            case What.CUT | What.CUT_ONE_WAY:
                pairs = [(who[0], who[1])] + ([(who[1], who[0])] if happening.what is What.CUT else [])
                net.cut(pairs)
                return lambda: net.cut(pairs, by=-1)
            case What.CUT_APART:
                return self._cut_apart(who)
            case What.NO_UDP:
                net.block_udp(who[0])
                return lambda: net.block_udp(who[0], by=-1)
            case What.NO_RENDEZVOUS:
                net.block_tcp(who[0])
                return lambda: net.block_tcp(who[0], by=-1)
            case What.RENDEZVOUS_AWAY:
                net.raise_rendezvous(False)
                return lambda: net.raise_rendezvous(True)
            case What.SOURCE_AWAY:
                self.host.raise_up(False)
                return lambda: self.host.raise_up(True)
            case What.JOIN:
                name = f"new{len(self.machines)}"
                self._machine(name).start()
                return None
            case What.LEAVE:
                self._leave(self.machines[who[0]])
                return None
            case What.KICK:
                self._kick(who[0])
                return None

    def _kill(self, name: str) -> None:
        machine = self.machines[name]
        if machine.process is not None:
            machine.process.die()
            self._life_changed()

    def _restart(self, name: str) -> None:
        machine = self.machines[name]
        if not machine.is_out and (machine.process is None or machine.process.life is Life.DEAD):
            machine.start()
            machine.reached_since_s = None
            self._life_changed()

    def _hang(self, name: str) -> Callable[[], None] | None:
        process = self.machines[name].process
        if process is None or process.life is not Life.RUNS:
            return None
        process.hang()
        self._life_changed()

        def wake() -> None:
            if process.life is Life.HANGS:
                process.wake(mail_first=self.chance.random() < 0.7)
                self._life_changed()

        return wake

    def _take_offline(self, name: str) -> Callable[[], None]:
        self.internet.block_udp(name)
        self.internet.block_tcp(name)

        def over() -> None:
            self.internet.block_udp(name, by=-1)
            self.internet.block_tcp(name, by=-1)

        return over

    def _move(self, name: str, back_online: Callable[[], None]) -> None:
        """Its network is another one, which its process sees when it looks next."""
        self.internet.move(name)
        back_online()
        machine = self.machines[name]
        self.loop.outside(LOOK_EVERY_S * self.chance.random(), machine.command, machine.look_at_network)

    def _cut_apart(self, part: Iterable[str]) -> Callable[[], None]:
        """The part that has no founder in it has no rendezvous either."""
        inside = set(part)
        outside = [name for name in self.machines if name not in inside]
        pairs = [*product(inside, outside), *product(outside, inside)]
        without = sorted(inside if self.schedule.members[0] not in inside else outside)
        self.internet.cut(pairs)
        for name in without:
            self.internet.block_tcp(name)

        def over() -> None:
            self.internet.cut(pairs, by=-1)
            for name in without:
                self.internet.block_tcp(name, by=-1)

        return over

    def _leave(self, machine: SimMachine) -> None:
        machine.go_out("left")
        if machine.seat is not None:
            machine.command(machine.seat.leave)

    def _kick(self, name: str) -> None:
        """By whoever is the host, if that is another."""
        target = self.machines[name]
        for machine in self.machines.values():
            session = machine.participation
            if not machine.runs or session is None or not session.channel.is_host or machine is target:
                continue
            if machine.state is State.CLOSED or all(m.name != target.member_name for m in session.channel.members):
                continue
            target.go_out("kicked")
            machine.command(session.channel.remove, target.member_name, "removed")
            return

    # ---- People who ask

    def _asks(self, asking: Asking) -> None:
        machine = self.machines[asking.machine]
        answer = Answer(asking.machine, asking.prompt, asking.most, self.now_s, process=machine.process)
        if not machine.runs or machine.process is None:
            return
        self.answers.append(answer)
        machine.process.start(self._answer(machine, answer), f"client at {machine.name}")

    async def _answer(self, machine: SimMachine, answer: Answer) -> None:
        """A client that waits for the session to be ready, and then reads what comes."""
        while machine.state is not State.READY:
            if machine.state is State.CLOSED and machine.is_out:
                answer.error, answer.ended_s = f"never asked: {machine.is_out}", self.now_s
                return
            if self.now_s > self.schedule.calm_at_s + SETTLE_S:
                answer.error, answer.ended_s = "never asked: the session did not get ready", self.now_s
                return
            await asyncio.sleep(0.5)
        assert machine.seat is not None
        answer.began_s = before_s = self.now_s
        request = pb.GenerateRequest(
            prompt=" ".join(map(str, answer.prompt)), options=pb.Options(temperature=0.0, num_predict=answer.most)
        )
        try:
            async for reply in machine.seat.generate(request):
                answer.text += reply.text
                answer.longest_pause_s = max(answer.longest_pause_s, self.now_s - before_s)
                before_s = self.now_s
            answer.is_complete = True
        except KafilaError as error:
            answer.error = f"{error.code}: {error}"
        answer.ended_s = self.now_s
        self.note(machine.name, f"answer of {len(answer.ids)} tokens {'ends' if not answer.error else answer.error}")

    # ---- The timeline

    def _tell_states(self) -> None:
        for machine in self.machines.values():
            session = machine.participation
            if session is None or not machine.runs:
                continue
            follower = session.driver.follower
            epoch = follower.proposal.epoch if follower.proposal else 0
            members = ",".join(member.name for member in session.channel.members)
            told = f"{follower.state} epoch {epoch} host {session.channel.host} members {members}"
            if told != machine.told:
                machine.told = told
                self.note(machine.name, told)
