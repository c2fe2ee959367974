"""`session doctor`: measures what this machine's network does, and says it. Needs no session, changes nothing."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kafila_proto import rendezvous_pb2, rendezvous_pb2_grpc
from kafila_proto import sidecar_pb2 as pb
from kafila_rendezvous.config import PROTOCOL
from kafila_sidecar.errors import KafilaError
from kafila_sidecar.net.candidates import Address, host_candidates, system_interfaces
from kafila_sidecar.net.nat import diagnosis
from kafila_sidecar.net.nat.behaviour import Nat, StunServer
from kafila_sidecar.net.nat.classify import OwnSocket, SoleSocket, classify
from kafila_sidecar.net.nat.stun_servers import find_servers, parse_servers
from kafila_sidecar.net.portmap.driver import find_offer
from kafila_sidecar.net.portmap.mapping import MappingOffer
from kafila_sidecar.session.rendezvous.address import RendezvousAddress as Place
from kafila_sidecar.session.rendezvous.address import parse_address
from kafila_sidecar.session.rendezvous.dial import CALL_DEADLINE_S, answered, dial

AskRouter = Callable[[], Awaitable[MappingOffer | None]]

LARGEST_CLOCK_ERROR_S = 1e9  # some 30 years
GREETINGS = 3  # the quickest counts


@dataclass(frozen=True, slots=True)
class _Greeting:
    """The best of several answers of the rendezvous. `clock_ahead_s`: its clock less ours, half a round trip off."""

    reply: rendezvous_pb2.GreetReply
    rtt_s: float
    clock_ahead_s: float | None  # None: what it told is no time


async def examine(
    *, rendezvous: str, stun: str, own: OwnSocket | None = None, ask_router: AskRouter = find_offer
) -> pb.DoctorReply:
    """Some seconds at most. `rendezvous` and `stun` as KAFILA_RENDEZVOUS and KAFILA_STUN, empty where there is none.

    `own` is the node's socket; without it one is opened, whose mapping is the same. `ask_router` tells whether this
    machine's router maps ports.

    Raises:
        InvalidInput: one of the two can't be read.
    """
    place = parse_address(rendezvous) if rendezvous else None
    further = parse_servers(stun)
    greeting, failure = await _reach(place)
    udp = greeting.reply.udp if greeting else None
    found = await find_servers(place.host if place else None, udp, further)
    nat, offer = await asyncio.gather(_classified(own, found.servers), ask_router())
    facts = diagnosis.Facts(
        addresses=tuple(c.address for c in host_candidates(1, system_interfaces(), ipv6=True)),
        rendezvous=_told(place, greeting, failure),
        nat=nat,
        unresolved=found.unresolved,
        mapping_offer=offer,
    )
    return _reply(facts)


async def _reach(place: Place | None) -> tuple[_Greeting | None, str]:
    """What the rendezvous says, or one sentence on why it says nothing."""
    if place is None:
        return None, ""
    try:
        return await _greet(place), ""
    except KafilaError as error:
        return None, str(error)


async def _greet(place: Place) -> _Greeting:
    greetings = []
    async with await dial(place) as channel:
        stub = rendezvous_pb2_grpc.RendezvousStub(channel)  # type: ignore[no-untyped-call]
        for _ in range(GREETINGS):
            sent_at, started_at = time.time(), time.perf_counter()
            call = stub.Greet(rendezvous_pb2.GreetRequest(protocol=PROTOCOL), timeout=CALL_DEADLINE_S)
            reply = await answered(call, place)
            rtt_s = time.perf_counter() - started_at
            ahead_s = reply.time_s - (sent_at + rtt_s / 2)
            greetings.append(_Greeting(reply, rtt_s, ahead_s if abs(ahead_s) < LARGEST_CLOCK_ERROR_S else None))
    return min(greetings, key=lambda greeting: greeting.rtt_s)


async def _classified(own: OwnSocket | None, servers: Sequence[StunServer]) -> Nat:
    if own is not None:
        return await classify(own, servers)
    sole = SoleSocket()
    try:
        return await classify(sole, servers)
    finally:
        sole.close()


def _told(place: Place | None, greeting: _Greeting | None, failure: str) -> diagnosis.Rendezvous | None:
    if place is None:
        return None
    if greeting is None:
        return diagnosis.Rendezvous(place.target, failure=failure)
    return diagnosis.Rendezvous(place.target, rtt_s=greeting.rtt_s, clock_ahead_s=greeting.clock_ahead_s)


def _reply(facts: diagnosis.Facts) -> pb.DoctorReply:
    findings, verdict, nat = diagnosis.diagnose(facts), diagnosis.judge(facts), facts.nat
    return pb.DoctorReply(
        text=diagnosis.text(findings),
        findings=[pb.Finding(topic=f.topic, level=f.level, sentence=f.sentence, advice=f.advice) for f in findings],
        addresses=facts.addresses,
        udp={True: "passes", False: "blocked", None: "unknown"}[nat.udp],
        mapping=nat.mapping,
        mapping_is_assumed=nat.mapping_is_assumed,
        filtering=nat.filtering,
        filtering_is_assumed=nat.filtering_is_assumed,
        mapped_address=_written(nat.mapped),
        rtt_s=nat.rtt_s or 0.0,
        clock_ahead_s=(facts.rendezvous and facts.rendezvous.clock_ahead_s) or 0.0,
        reach=verdict.reach,
        direct_with=verdict.direct_with,
        relayed_with=verdict.relayed_with,
        rendezvous_here=verdict.rendezvous_here,
    )


def _written(address: Address | None) -> str:
    return diagnosis.place(address) if address else ""
