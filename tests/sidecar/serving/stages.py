"""Members in one process: real stages with real shards of a tiny model, joined by real links on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import KafilaError, Unavailable
from kafila_sidecar.machine.measuring import Measuring
from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.runtime.answer.calls import Call, read_calls
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.text.prompt import ChatPrompt, parse_prompt
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from kafila_sidecar.runtime.text.vocabulary import Vocabulary, from_json, to_json
from kafila_sidecar.serving.asking import AnswerPatience
from kafila_sidecar.serving.drafting.drafts import Drafts
from kafila_sidecar.serving.holding import LoadShard
from kafila_sidecar.serving.intake.intake import SessionText
from kafila_sidecar.serving.stage import Stage, StageLimits
from kafila_sidecar.serving.trace import Circuit
from kafila_sidecar.session.coordination.effects import Fault, Proposal
from kafila_sidecar.weights.checkpoint import Checkpoint, open_checkpoint
from kafila_sidecar.weights.providers.hub import Hub
from tests.sidecar.net.people import KEY, SESSION, LinkPerson, person
from tests.support.plans import MODEL, plan_of, problem_of, stage

BLOCKS = 6
CONTEXT = 256
NAMES = ("ada", "bob", "cyd", "dan")
LIMITS = StageLimits(
    patience=AnswerPatience(epoch_s=20.0, ring_s=10.0, first_pause_s=0.02, longest_pause_s=0.1, give_way_s=0.05)
)
STOP = Fault("", "UNAVAILABLE", "the session is being planned again")


class TextHere:
    """In place of a process for the text: no limits, and no second start of Python for each test."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.load(folder)

    async def vocabulary(self) -> Vocabulary:
        return from_json(to_json(self._tokenizer))

    async def ids(self, prompt: str, **fit: Any) -> Sequence[int]:
        await asyncio.sleep(0)
        return self._tokenizer.ids(prompt, **fit)

    async def calls(self, text: str, *, reader: str, prompt: str) -> Sequence[Call]:
        await asyncio.sleep(0)
        asked = parse_prompt(prompt)
        return read_calls(text, reader=reader, tools=asked.tools if isinstance(asked, ChatPrompt) else ())

    def kill(self) -> None: ...
    async def close(self) -> None: ...


class MemberLinks:
    """One member's links by peer name, as session/links.py shows them."""

    def __init__(self) -> None:
        self.up: dict[str, Link] = {}

    def to(self, peer: str) -> Link:
        try:
            return self.up[peer]
        except KeyError:
            raise Unavailable(f"there is no link to {peer} right now") from None


class StageMember:
    """One stage with what a participation gives it."""

    def __init__(self, name: str, stage: Callable[["StageMember"], Stage]) -> None:
        self.name = name
        self.links = MemberLinks()
        self.person: LinkPerson = person()
        self.endpoint = Endpoint.open(host="127.0.0.1")
        self.traces: list[dict[str, Any]] = []
        self.counted: list[tuple[Mapping[str, Any], Sequence[Circuit]]] = []
        self.broken: list[tuple[str, str]] = []
        self.misled: list[tuple[str, str]] = []
        self.stage = stage(self)

    async def on_stream(self, stream: Stream) -> None:
        if stream.kind == StreamKind.ACTIVATIONS:
            await self.stage.take_frames(stream)
        elif stream.kind == StreamKind.REQUEST:
            await self.stage.answer(stream)

    async def dial(self, peer: "StageMember") -> None:
        self.links.up[peer.name] = await self.endpoint.connect(
            session=SESSION,
            key=KEY,
            me=self.person,
            peer_name=peer.name,
            peer_fingerprint=peer.person.fingerprint,
            candidates=peer.endpoint.candidates(),
            deadline_s=5.0,
            on_stream=self.on_stream,
        )


class StageParty:
    """Members that are linked; `serve` loads and serves one plan, `replan` stops it and serves another."""

    def __init__(self, members: Sequence[StageMember], mlx: MlxThread) -> None:
        self.members = members
        self.mlx = mlx
        self._by_name = {member.name: member for member in members}
        self._epoch = 0

    def __getitem__(self, name: str) -> StageMember:
        return self._by_name[name]

    async def serve(
        self, cuts: Sequence[int], order: Sequence[str], *, concurrency: int = 2, members: Sequence[str] = ()
    ) -> Proposal:
        """`cuts`: where each stage begins, and the end; `order`: who holds them, the head first."""
        self._epoch += 1
        proposal = plan(self._epoch, cuts, order, concurrency)
        present = self._present(members)
        await asyncio.gather(*(member.stage.load(proposal, lambda *_: None) for member in present))
        for member in present:
            member.stage.serve(proposal)
        return proposal

    async def stop(self, fault: Fault = STOP, *, members: Sequence[str] = ()) -> None:
        await asyncio.gather(*(member.stage.stop(fault) for member in self._present(members)))

    async def kill(self, name: str) -> None:
        """A member's links break at once, at both ends."""
        for member in self.members:
            if member.name != name and (link := member.links.up.pop(name, None)):
                await link.close()
        for link in self[name].links.up.values():
            await link.close()
        self[name].links.up.clear()

    def _present(self, names: Sequence[str]) -> list[StageMember]:
        return [self[name] for name in names] or list(self.members)

    async def close(self, fault: Fault = STOP) -> None:
        await asyncio.gather(*(member.stage.close(fault) for member in self.members))

    @property
    def held(self) -> dict[str, int]:
        return {member.name: member.stage.active_sequences for member in self.members}

    async def link_anew(self, here: str, there: str) -> None:
        """Breaks the link of two members, and gives them another one a moment later."""
        one, other = self[here], self[there]
        await one.links.up.pop(there).close()
        del other.links.up[here]
        await asyncio.sleep(0.1)
        await asyncio.gather(one.dial(other), other.dial(one))

    async def until_free(self, deadline_s: float = 1.0, *, members: Sequence[str] = ()) -> None:
        """Returns once no stage holds a sequence; fails after the deadline."""
        async with asyncio.timeout(deadline_s):
            while any(member.stage.active_sequences for member in self._present(members)):  # noqa: ASYNC110  # the stages tell nobody
                await asyncio.sleep(0.005)


MEASURED: dict[str, Any] = {
    "block_s": ((1, 0.01), (8, 0.011)),
    "head_s": ((1, 0.01), (8, 0.011)),
    "overhead_s": 0.001,
    "memory_bytes": 1 << 30,
    "rtt_s": 0.0001,
}
"""Of machines for which eight sequences at once cost little more than one, so that runs have several rows."""


def plan(epoch: int, cuts: Sequence[int], order: Sequence[str], concurrency: int) -> Proposal:
    stages = [stage(name, start, end) for name, (start, end) in zip(order, pairwise(cuts), strict=True)]
    problem = problem_of(
        *dict.fromkeys((*NAMES, *order)),
        model={**MODEL, "blocks": cuts[-1]},
        context_tokens=CONTEXT,
        concurrency=concurrency,
    )
    problem = replace(problem, members=tuple(replace(member, **MEASURED) for member in problem.members))
    return Proposal(epoch, problem, plan_of(stages))


@asynccontextmanager
async def party(
    folder: Path,
    data: Path,
    *names: str,
    limits: StageLimits = LIMITS,
    bits: int = 0,
    text: Callable[[Path], SessionText] | None = None,
    load_shard: LoadShard = Shard.load,
    drafts: Callable[[MlxThread], Drafts] | None = None,
    apart: Collection[str] = (),
) -> AsyncIterator[StageParty]:
    """Members of these names, all linked with each other; `bits`: what they pack the checkpoint to while loading;
    `text`: what renders and encodes, unless that is to be done here, which begins sooner; `drafts`: makes what guesses
    on a member beside the text itself; `apart`: those who have a model thread of their own."""
    checkpoint = await open_checkpoint(str(folder), hub=Hub(endpoint="http://127.0.0.1:9"), cache=data)
    mlx = MlxThread()
    if bits:
        checkpoint = await packed(checkpoint, mlx, bits)

    own = {name: MlxThread() for name in apart}

    def make_stage(member: StageMember) -> Stage:
        return Stage(
            name=member.name,
            weights=checkpoint,
            bits=checkpoint.bits,
            mlx=own.get(member.name, mlx),
            text=text or TextHere,
            links=lambda: member.links,
            traced=member.traces.append,
            counted=lambda record, decoded: member.counted.append((record, decoded)),
            busy=lambda busy: None,
            broken=lambda code, sentence: member.broken.append((code, sentence)),
            misled=lambda by, sentence: member.misled.append((by, sentence)),
            limits=limits,
            load_shard=load_shard,
            drafts=drafts and drafts(mlx),
        )

    made = StageParty([StageMember(name, make_stage) for name in names], mlx)
    try:
        for one, other in combinations(made.members, 2):
            await asyncio.gather(one.dial(other), other.dial(one))
        yield made
        await made.stop()
        await made.close()
    finally:
        for member in made.members:
            await member.endpoint.close()
        for thread in (mlx, *own.values()):
            thread.close()


async def packed(checkpoint: Checkpoint, mlx: MlxThread, bits: int) -> Checkpoint:
    """The checkpoint as members hold it that pack it while loading."""
    measuring = Measuring(mlx=mlx, folder=checkpoint.folder, reserved=lambda: 0)
    return checkpoint.packed(bits, await measuring.anatomy(checkpoint.config, checkpoint.manifest.tensors, bits))


def ask(prompt: str = "once upon a time", **options: Any) -> pb.GenerateRequest:
    """A greedy request."""
    given = {"temperature": 0.0, "num_predict": 12, **options}
    return pb.GenerateRequest(prompt=prompt, options=pb.Options(**given), truncate=True)


async def answer(member: StageMember, request: pb.GenerateRequest) -> tuple[str, pb.GenerateReply]:
    """The whole text of an answer, and its last reply."""
    texts: list[str] = []
    last = pb.GenerateReply()
    async for reply in member.stage.generate(request):
        texts.append(reply.text)
        last = reply
    return "".join(texts), last


async def refusal(member: StageMember, request: pb.GenerateRequest) -> KafilaError:
    """What a request is refused with."""
    try:
        await answer(member, request)
    except KafilaError as error:
        return error
    raise AssertionError("it was answered")


def spoil(folder: Path, *, keep: tuple[str, ...]) -> None:
    """Makes every number in a checkpoint's files that is not of these tensors no number."""
    for path in folder.glob("*.safetensors"):
        data = bytearray(path.read_bytes())
        start = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:start]).items():
            if name != "__metadata__" and not name.startswith(keep):
                begin, end = (start + offset for offset in entry["data_offsets"])
                data[begin:end] = b"\xff" * (end - begin)
        path.write_bytes(data)
