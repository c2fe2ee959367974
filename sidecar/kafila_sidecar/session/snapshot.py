"""A session as its snapshot shows it; a pure translation."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from kafila_planner import Plan, Problem, plan_to_json
from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.models.family import text_of
from kafila_sidecar.runtime.answer.formats import speaks_in_channels, thinks, uses_tools
from kafila_sidecar.runtime.text.options import resolve
from kafila_sidecar.runtime.text.templates import find_templates
from kafila_sidecar.session import sentences
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.coordination.edges import predicted_path
from kafila_sidecar.session.coordination.follower import Follower
from kafila_sidecar.session.coordination.messages import CHOOSING
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.driving.roster import DecodeTimes, MemberView, Roster
from kafila_sidecar.session.hosting.coordinator import Coordinator
from kafila_sidecar.session.keeping.kept import KeptSession
from kafila_sidecar.weights.checkpoint import Checkpoint

SLEEPING = "sleeping"  # beside the states of a session that this machine takes part in
PARSER = "kafila"  # reads the frames of an answer, for every text model
LEVELS = (
    "harmony"  # the same for models that think at levels: stock takes `think: "low"` for a parser of this name only
)


T = TypeVar("T")
Made = TypeVar("Made")


class Latest(Generic[T, Made]):
    """What was made of a thing last, for as long as it is that very one."""

    def __init__(self, make: Callable[[T], Made]) -> None:
        self._make = make
        self._latest: tuple[T, Made] | None = None

    def of(self, thing: T) -> Made:
        if self._latest is None or self._latest[0] is not thing:
            self._latest = thing, self._make(thing)
        return self._latest[1]


class Lasting:
    """What of one session's snapshots takes long to say, and is the same from one to the next."""

    def __init__(self, channel: Channel) -> None:
        self._stub_models = Latest(partial(stub_model, channel))
        self._plans = Latest(_plan_json)

    def stub_model(self, checkpoint: Checkpoint) -> pb.StubModel:
        return self._stub_models.of(checkpoint)

    def plan_json(self, plan: Plan) -> str:
        return self._plans.of(plan)


def session_view(
    *,
    channel: Channel,
    follower: Follower,
    roster: Roster,
    coordinator: Coordinator | None,
    checkpoint: Checkpoint | None,
    lasting: Lasting,
) -> pb.Session:
    """Everything but the code and what only the stage knows. `checkpoint`: None while it is not known here."""
    terms = channel.terms
    present = [name for name in roster.seen if not follower.liveness.is_gone(name)]
    serving = follower.proposal.plan.order if follower.proposal and follower.state is State.READY else ()
    session = pb.Session(
        id=channel.session.hex(),
        state=follower.state.value,
        doing=sentences.doing(
            follower.state,
            wanted=terms.members_wanted,
            present=present,
            waiting=coordinator.waiting_for() if coordinator else [],
            progress={name: seen.doing for name, seen in roster.seen.items()},
            joining=channel.joining,
            shortage=follower.shortage,
            ending=follower.ending,
            repair=roster.repair,
            chooser=channel.host if roster.does(channel.host, CHOOSING) else "",
        ),
        failure=follower.fault.sentence if follower.fault else "",
        failure_code=follower.fault.code if follower.fault else "",
        model=terms.model,
        revision=terms.revision,
        self=channel.self_name,
        host=channel.host,
        members_wanted=terms.members_wanted,
        context_tokens=terms.context_tokens,
        concurrency=terms.concurrency,
        members=[
            _member(
                name,
                seen,
                role="host" if name == channel.host else "member",
                present=name in present,
                serves=name in serving,
            )
            for name, seen in roster.seen.items()
        ],
        vehicle=lasting.stub_model(checkpoint) if checkpoint else None,
        last_trace_json=json.dumps(roster.trace) if roster.trace else "",
        joining=channel.joining,
        notices=checkpoint.anatomy.notices if checkpoint else (),
    )
    if roster.busy:
        session.activity.CopyFrom(_activity(roster.busy))
    if follower.proposal:
        session.plan_json = lasting.plan_json(follower.proposal.plan)
        _show_plan(session, follower.proposal.plan, follower.proposal.epoch, roster.steps)
        _show_edges(session, follower.proposal.problem, roster)
    return session


def _activity(busy: ring_pb2.Busy) -> pb.Activity:
    return pb.Activity(
        tokens_per_s=busy.tokens_per_s,
        waiting=busy.waiting,
        answering=[
            pb.Answering(
                member=asking.member,
                doing="waiting" if asking.waits else "answering" if asking.answer_tokens else "reading",
                prompt_tokens=asking.prompt_tokens,
                answer_tokens=asking.answer_tokens,
            )
            for asking in busy.asking
        ],
    )


def sleeping_view(kept: KeptSession, *, code: str, waits: str) -> pb.Session:
    """A session that this machine is away from; `waits`: for what, in a sentence."""
    terms = kept.log.terms
    return pb.Session(
        id=kept.id,
        code=code,
        state=SLEEPING,
        doing=f"asleep: {waits}",
        model=terms.model,
        revision=terms.revision,
        self=kept.name,
        host=kept.log.host,
        members_wanted=terms.members_wanted,
        context_tokens=terms.context_tokens,
        concurrency=terms.concurrency,
        members=[
            pb.Member(name=member.name, role="host" if member.name == kept.log.host else "member", doing="away")
            for member in kept.log.members
        ],
        vehicle=pb.StubModel.FromString(kept.stub_model) if kept.stub_model else None,
        rendezvous_note=kept.note,
        joining="unreachable",
    )


def stub_model(channel: Channel, checkpoint: Checkpoint) -> pb.StubModel:
    """How the session's model is registered in the member's own store."""
    config: Mapping[str, Any] = checkpoint.config
    return pb.StubModel(
        name=f"kafila/session/{_model_name(channel.terms.model)}:{channel.session.hex()[:6]}",
        architecture=str(config.get("model_type", "")),
        context_length=channel.terms.context_tokens,
        embedding_length=int(text_of(config).get("hidden_size", 0)),
        parameter_count=checkpoint.parameters,
        quantization=checkpoint.quantization,
        parser=_parser(checkpoint.small_files),
        parameters=_parameters(checkpoint),
        weight_bytes=checkpoint.weight_bytes,
        insert=checkpoint.gap is not None,
    )


@lru_cache(maxsize=64)
def _parser(folder: Path) -> str:
    """Which parser reads this checkpoint's answers, by which stock knows what the model can. Templates are read, and
    not run."""
    template = "".join(find_templates("the checkpoint", folder).values())
    if speaks_in_channels(template):
        return LEVELS
    return PARSER + ("-tools" if uses_tools(template) else "") + ("-think" if thinks(template) else "")


def _parameters(checkpoint: Checkpoint) -> dict[str, float]:
    """The checkpoint's sampling defaults; all that the stock server would fill with its own otherwise."""
    options = resolve({}, checkpoint.generation_config)
    names = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")
    return {name: float(getattr(options, name)) for name in names}


def _model_name(model: str) -> str:
    """The last part of a repository id or folder, as Ollama's model names allow it."""
    last = model.rstrip("/").rsplit("/", 1)[-1].lower()
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in last)


def _member(name: str, seen: MemberView, *, role: str, present: bool, serves: bool) -> pb.Member:
    """A latecomer never heard what the others did, but a session is ready when all its stages are."""
    return pb.Member(
        name=name,
        role=role,
        present=present,
        doing=_doing(seen, serves=serves),
        usable_memory_bytes=seen.usable_memory_bytes,
        fetched_bytes=seen.fetched_bytes,
        fetch_total_bytes=seen.total_bytes,
        device=seen.device,
        kafila=seen.kafila,
        fetch_rate_bytes_per_s=seen.rate_bytes_per_s,
        waits_for=seen.waits_for,
    )


def _doing(seen: MemberView, *, serves: bool) -> str:
    if seen.aside:
        return f"entry point: {seen.aside}"
    return "ready" if serves else seen.doing


def _plan_json(plan: Plan) -> str:
    return json.dumps(plan_to_json(plan))


def _show_plan(session: pb.Session, plan: Plan, epoch: int, steps: DecodeTimes) -> None:
    session.epoch = epoch
    session.expected_tokens_per_s = plan.tokens_per_s_one_user or 0.0
    took = steps if steps.epoch == epoch else DecodeTimes()
    for stage in plan.stages:
        session.stages.add(
            member=stage.member,
            start=stage.start,
            end=stage.end,
            head=stage.member == plan.head,
            resident_bytes=stage.resident_bytes,
            predicted_s=stage.cost_s or 0.0,
            measured_s=took.stages.get(stage.member, 0.0),
        )
    for hop in plan.hops:
        shown = session.hops.add(path=hop.path.value, predicted_s=hop.cost_s or 0.0)
        setattr(shown, "from", hop.from_member)
        shown.to = hop.to_member
        shown.measured_s = took.hops.get((hop.from_member, hop.to_member), 0.0)


def _show_edges(session: pb.Session, problem: Problem, roster: Roster) -> None:
    """What the hops' links turned out to be."""
    for hop in session.hops:
        ends = getattr(hop, "from"), hop.to
        hop.predicted_path = predicted_path(problem, *ends)
        if edge := roster.edges.get(frozenset(ends)):
            hop.path, hop.rtt_s, hop.formed_s = edge.path, edge.rtt_s, edge.formed_s
