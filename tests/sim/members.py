"""Members of one session as their machines run them: everything real but what lies below the links and the model."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

from kafila_proto import ring_pb2
from kafila_sidecar.machine.participation import Participation
from kafila_sidecar.machine.reaching import Reaching
from kafila_sidecar.machine.taking_part import StreamRouter
from kafila_sidecar.machine.watching import Changes
from kafila_sidecar.net.nat.behaviour import Nat
from kafila_sidecar.net.nat.monitor import Listener
from kafila_sidecar.serving.engine import EngineLimits
from kafila_sidecar.serving.stage import Stage, StageLimits
from kafila_sidecar.session.admission.newcomer import Newcomer
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.coordination.effects import Json
from kafila_sidecar.session.driving.driver import SessionDriver
from kafila_sidecar.session.driving.links import StandingLinks
from kafila_sidecar.session.driving.turns import Turns
from kafila_sidecar.session.join import HostMailbox
from kafila_sidecar.session.keeping.keeper import Keeper
from kafila_sidecar.session.keeping.kept import KeptPlace, KeptSession, kept_from
from kafila_sidecar.session.membership import entries
from kafila_sidecar.session.membership.entries import found_log
from kafila_sidecar.session.membership.identity import Identity, make_identity
from kafila_sidecar.session.membership.log import replay
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.session.rendezvous.elsewhere import nowhere
from tests.sidecar.session.trust_world import MemoryStore, entropy
from tests.sim.clock import Life, SimProcess
from tests.sim.links import SimEndpoint
from tests.sim.model import (
    BLOCK_S,
    CALL_S,
    CHUNK_TOKENS,
    CONCURRENCY,
    CONTEXT,
    TERMS,
    Disk,
    NumberPrompts,
    SimThread,
    SimWeights,
    load_shard,
)
from tests.sim.rendezvous import SimMailbox
from tests.support.no_outlook import NoOutlook

VERSIONS = Versions("1.0", planner=1, mlx_lm="2.0")
KEY = bytes(32)
SESSION_TERMS = ring_pb2.SessionTerms(model="m", context_tokens=CONTEXT, concurrency=CONCURRENCY)
LIMITS = StageLimits(engine=EngineLimits(prefill_chunk_tokens=CHUNK_TOKENS))
ANSWER_S = 10.0
KEPT = "kept"


@cache
def identity(number: int) -> Identity:
    """Making keys takes longer than a whole session here; every world has the same."""
    return make_identity()


def replicas(names: Sequence[str], mailboxes: Sequence[int], seed: int) -> list[Replica]:
    """Everybody's view of a session that these have joined, the founder first."""
    session = seed.to_bytes(16, "big")
    founder = identity(0)
    log = found_log(founder, session=session, terms=SESSION_TERMS, name=names[0], mailbox=mailboxes[0])
    for number, name in enumerate(names[1:], start=1):
        keys = identity(number)
        entries.admit(
            log, founder, name=name, certificate=keys.der, agreement=keys.agreement, mailbox=mailboxes[number]
        )
    return [
        Replica(
            identity=identity(number),
            self_name=name,
            log=log if number == 0 else replay(session, log.entries),
            key=KEY,
            entropy=entropy(f"{seed} {name}"),
        )
        for number, name in enumerate(names)
    ]


class DiskKeeper(Keeper):
    """Writes to a machine's played disk, at once. The count of guesses at a code is a file in `folder`."""

    def __init__(self, folder: Path, disk: Disk, kept: KeptSession, process: SimProcess) -> None:
        super().__init__(folder, kept, clock=asyncio.get_running_loop().time)
        self._disk = disk
        self._process = process

    def _write(self, data: bytes) -> None:
        if self._process.life is not Life.DEAD:
            self._disk.files[KEPT] = data

    def forget(self) -> None:
        self._disk.files.pop(KEPT, None)


def new_keeper(folder: Path, disk: Disk, process: SimProcess, mailbox: SimMailbox, replica: Replica) -> Keeper:
    """Of a member that is new."""
    kept = KeptSession(
        identity=replica.identity,
        name=replica.self_name,
        log=replica.log,
        key=replica.keys.key,
        places=(KeptPlace(mailbox.address, mailbox.place),),
    )
    return DiskKeeper(folder, disk, kept, process)


def old_keeper(folder: Path, disk: Disk, process: SimProcess) -> Keeper | None:
    """Of a member whose process was started again, if its disk has what that takes."""
    data = disk.files.get(KEPT)
    return None if data is None else DiskKeeper(folder, disk, kept_from(data), process)


def channel_of(mailbox: SimMailbox, replica: Replica, keeper: Keeper) -> Channel:
    mailbox.hand_over()
    return Channel(
        mailbox=cast(Any, mailbox),
        replica=replica,
        guesses=MemoryStore(),
        versions=VERSIONS,
        keeper=keeper,
        elsewhere=nowhere,
    )


async def join_by_code(mailbox: SimMailbox, code: Code, name: str) -> Replica:
    """As `approach` and `enrol`, over a mailbox that is attended, which is closed where they raise something."""
    try:
        return await _enrolled(HostMailbox(cast(Any, mailbox), ANSWER_S), code, name)
    except BaseException:
        await mailbox.aclose()
        raise


async def _enrolled(host: HostMailbox, code: Code, name: str) -> Replica:
    newcomer = Newcomer(code, os.urandom, VERSIONS.protocols)
    await host.exchange(newcomer, newcomer.start(), until="offered")
    keys, protocol = make_identity(), VERSIONS.protocols.newest
    body = ring_pb2.EnrolBody(
        name=name,
        certificate=keys.der,
        agreement=keys.agreement,
        version=VERSIONS.kafila,
        planner=VERSIONS.planner,
        mlx_lm_version=VERSIONS.mlx_lm,
        protocol=protocol,
        oldest_protocol=protocol,
    )
    await host.exchange(newcomer, newcomer.enrol(body), until="admitted")
    admitted = newcomer.admitted
    log = replay(newcomer.offer.session, admitted.log)
    return Replica(identity=keys, self_name=admitted.name, log=log, key=admitted.key, entropy=os.urandom)


class NoRouter:
    """As `NetworkMonitor`, on a machine that is in one network, and then perhaps in another one."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    def moved(self) -> None:
        for listener in list(self._listeners):
            listener.changed()

    async def about(self, servers: Any) -> Nat:
        return Nat(udp=True)


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a machine brings."""

    memory_bytes: int
    slowness: float
    bytes_per_s: float
    measuring_s: float

    def entry(self) -> Json:
        block_s, head_s = BLOCK_S * self.slowness, CALL_S * self.slowness
        return {
            "bandwidth_bytes_per_s": 2e10 / self.slowness,
            "overhead_s": 1e-4,
            "flops_per_s": 1e12 / self.slowness,
            "memory_bytes": self.memory_bytes,
            "block_s": {"1": block_s},
            "head_s": {"1": head_s},
        }


def take_part(
    channel: Channel,
    *,
    process: SimProcess,
    endpoint: SimEndpoint,
    monitor: NoRouter,
    weights: SimWeights,
    thread: SimThread,
    hardware: Hardware,
    changes: Changes,
) -> Participation:
    """As `taking_part.take_part`; runs in the process."""
    turns, standing = Turns(), StandingLinks()

    def traced(record: dict[str, Any]) -> None:
        turns.say(ring_pb2.Control(measured=ring_pb2.Measured(trace_json=json.dumps(record))))

    stage = Stage(
        name=channel.self_name,
        weights=weights,
        mlx=cast(Any, thread),
        text=NumberPrompts,
        links=lambda: standing,
        traced=traced,
        busy=lambda busy: turns.say(ring_pb2.Control(busy=busy)),
        broken=turns.stage_broke,
        misled=turns.stage_misled,
        limits=LIMITS,
        load_shard=cast(Any, partial(load_shard, worked=thread.worked)),
    )
    reaching = Reaching(
        channel=channel,
        endpoint=cast(Any, endpoint),
        monitor=cast(Any, monitor),
        further=(),
        on_stream=StreamRouter(channel, stage, cast(Any, weights)).take,
    )

    async def measure() -> tuple[Json, str]:
        await asyncio.sleep(hardware.measuring_s)
        return {**hardware.entry(), **await reaching.entry()}, "cpu"

    async def packings() -> Mapping[int, Json]:
        return {}

    driver = SessionDriver(
        channel=channel,
        network=cast(Any, reaching),
        standing=standing,
        stage=stage,
        turns=turns,
        terms=lambda: TERMS,
        shares=weights,
        measure=measure,
        packings=packings,
        changed=changes.note,
        outer=asyncio.get_running_loop().time,
    )
    turns.soon(driver._handler._members_changed)  # who was in the log from the beginning was not told to have joined
    return Participation(
        channel=channel,
        weights=cast(Any, weights),
        stage=stage,
        driver=driver,
        outlook=NoOutlook(),
        changes=changes,
        typed="",
        note="",
        spoken=str,
    )
