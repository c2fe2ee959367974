"""What a member says: from plain values to control messages. `messages` reads them."""

import json
from collections.abc import Iterable, Sequence

from kafila_planner import plan_to_json
from kafila_proto import ring_pb2
from kafila_sidecar.net import candidates as reach
from kafila_sidecar.net.candidates import Candidate
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.session.coordination.effects import Fault, Json, Proposal


def link(epoch: int, peer: str, up: Link | None) -> ring_pb2.Control:
    """This member's link to a peer, or that it is down."""
    report = ring_pb2.LinkReport(peer=peer, up=up is not None)
    if up is not None:
        report.path, report.rtt_s = up.path, up.rtt_s
        report.punch_s, report.handshake_s = up.punch_s, up.handshake_s
        report.bytes_per_s = up.bytes_per_s
    return ring_pb2.Control(epoch=epoch, link=report)


def progress(
    epoch: int,
    doing: str,
    here_bytes: int = 0,
    total_bytes: int = 0,
    rate_bytes_per_s: float = 0.0,
    waits_for: str = "",
) -> ring_pb2.Control:
    """What this member does for the plan of an epoch."""
    said = ring_pb2.Progress(
        doing=doing,
        fetched_bytes=here_bytes,
        total_bytes=total_bytes,
        rate_bytes_per_s=rate_bytes_per_s,
        waits_for=waits_for,
    )
    return ring_pb2.Control(epoch=epoch, progress=said)


def draws(sources: Iterable[str]) -> ring_pb2.Control:
    """Whom this member takes weights from now."""
    return ring_pb2.Control(draws=ring_pb2.Draws(sources=sorted(sources)))


def plan(proposal: Proposal, problem: Json, rests_s: float) -> ring_pb2.Control:
    """`problem`: the proposal's, as its members and the terms told it; `rests_s`: how long no better one is taken."""
    said = ring_pb2.PlanProposal(
        problem_json=json.dumps(problem), plan_json=json.dumps(plan_to_json(proposal.plan)), rests_s=rests_s
    )
    return ring_pb2.Control(epoch=proposal.epoch, plan=said)


def may_fetch(epoch: int) -> ring_pb2.Control:
    return ring_pb2.Control(epoch=epoch, go=ring_pb2.Go())


def may_serve(epoch: int) -> ring_pb2.Control:
    return ring_pb2.Control(epoch=epoch, ready=ring_pb2.Ready())


def ask(member: str) -> ring_pb2.Control:
    """Whether a member is there."""
    return ring_pb2.Control(ask=ring_pb2.Ask(member=member))


def here() -> ring_pb2.Control:
    """That this member is."""
    return ring_pb2.Control()


def candidates(own: Sequence[Candidate]) -> ring_pb2.Control:
    """Where this member is reached."""
    return ring_pb2.Control(candidates=reach.to_proto(own))


def begun() -> ring_pb2.Control:
    """That whoever is missing is not waited for any more."""
    return ring_pb2.Control(begun=ring_pb2.Begun())


def leaving() -> ring_pb2.Control:
    """That this member is to leave, and serves until the others have planned without it."""
    return ring_pb2.Control(leaving=ring_pb2.Leaving())


def fault(told: Fault, kind: str, epoch: int = 0) -> ring_pb2.Control:
    """That a member is "lost", "misbehaves" or is put "aside", that this one has "failed", or that the session is
    "short" or "over", or can't do without a member: it is "needed"."""
    said = ring_pb2.Fault(member=told.member, kind=kind, code=told.code, sentence=told.sentence)
    return ring_pb2.Control(epoch=epoch, fault=said)
