"""Members of a ring as processes of this machine: epochs as a session has them, over QUIC on loopback.

There is no session around them: who holds which blocks is said from outside, and prompts are ids.
"""

import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from bench.formation import HOST, Delayed
from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.net.candidates import from_proto, system_interfaces, to_proto
from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.runtime.activity import Activity, NotedThread
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.text.decoding import Decoding
from kafila_sidecar.runtime.text.vocabulary import Vocabulary
from kafila_sidecar.serving import epoch as epochs
from kafila_sidecar.serving.drafting.drafts import RunningDraft
from kafila_sidecar.serving.drafting.model import DraftModel
from kafila_sidecar.serving.engine import EngineLimits
from kafila_sidecar.serving.epoch import Epoch
from kafila_sidecar.serving.intake.intake import Intake
from kafila_sidecar.serving.intake.question import Question
from kafila_sidecar.serving.intake.requests import RequestTable
from kafila_sidecar.serving.ring import Interrupted
from kafila_sidecar.serving.standstill import WatchedThread
from kafila_sidecar.serving.trace import RequestTrace
from kafila_sidecar.session.coordination.effects import Proposal
from kafila_sidecar.session.membership.identity import Identity, make_identity
from tests.support.plans import MODEL, plan_of, problem_of, stage

SESSION, KEY = bytes(16), b"not secret: this is a benchmark."
DEADLINE_S = 300.0  # for a member to have its part in memory, or to give all its answers
LINK_DEADLINE_S = 30.0
ECHO = 100  # the kind of a stream whose messages come back

MakeShard = Callable[[int, int, bool], Shard]
"""Makes the stage [start, end), of the head or not, on the member's MLX thread."""

MakeDraft = Callable[[], DraftModel]
"""Makes the model that guesses, on the head's MLX thread."""

Card = tuple[str, bytes, bytes]
"""Of a member: its name, its candidates, and its certificate's fingerprint."""


@dataclass(frozen=True, slots=True)
class RingShape:
    """cuts: where each stage begins, and the end. vocabulary: how many ids there are. measured: what the planner is
    told of every member. env: of each member's process, by place. hop_s: what a datagram takes to another member
    beside what this machine takes. make_draft: for the head."""

    cuts: Sequence[int]
    make_shard: MakeShard
    vocabulary: int
    context_tokens: int
    concurrency: int
    measured: Mapping[str, Any]
    env: Sequence[Mapping[str, str]] = ()
    hop_s: float = 0.0
    make_draft: MakeDraft | None = None

    @property
    def names(self) -> Sequence[str]:
        return [f"member {place}" for place in range(len(self.cuts) - 1)]

    @property
    def proposal(self) -> Proposal:
        model = {**MODEL, "blocks": self.cuts[-1]}
        members = [{"name": name, "memory_bytes": 1 << 40, **self.measured} for name in self.names]
        problem = problem_of(
            model=model, members=members, context_tokens=self.context_tokens, concurrency=self.concurrency
        )
        return Proposal(1, problem, plan_of([stage(*one) for one in zip(self.names, *self._ranges, strict=True)]))

    @property
    def _ranges(self) -> tuple[Sequence[int], Sequence[int]]:
        return self.cuts[:-1], self.cuts[1:]


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: its ids, and when each came, in seconds since all were asked for."""

    tokens: Sequence[int]
    times: Sequence[float]


class RingOfProcesses:
    """One ring, as its parent sees it."""

    def __init__(self, pipes: Sequence[Connection]) -> None:
        self._pipes = pipes

    def answer(self, prompts: Sequence[Sequence[int]], tokens: int, *, guesses: int = 0) -> Sequence[Answered]:
        """Greedy answers to all prompts at once, so many tokens of each, with up to so many guesses a step."""
        answers: Sequence[Answered] = self._ask(0, _Member.answer, prompts, tokens, guesses)
        return answers

    def record(self) -> Mapping[str, Any]:
        """Of the latest answer that is over and cleared away."""
        record: Mapping[str, Any] = self._ask(0, _Member.record)
        return record

    def spent_s(self) -> Sequence[float]:
        """Seconds of processor time that each member has used so far."""
        return [self._ask(place, _Member.spent_s) for place in range(len(self._pipes))]

    def echo(self, size: int, times: int) -> None:
        """The head sends a message to the next member and gets it back, again and again: what a bare link costs."""
        self._ask(0, _Member.echo, size, times)

    def call_thread(self, times: int) -> None:
        """The head has its MLX thread do nothing, again and again."""
        self._ask(0, _Member.call_thread, times)

    def _ask(self, place: int, what: Callable[..., Any], *arguments: Any) -> Any:
        self._pipes[place].send((what.__name__, arguments))
        return received(self._pipes[place])


@contextmanager
def ring_of_processes(shape: RingShape) -> Iterator[RingOfProcesses]:
    """A ring whose members are linked, and have their parts in memory."""
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    processes = []
    try:
        for place in range(len(shape.names)):
            here, there = context.Pipe()
            processes.append(context.Process(target=_be_member, args=(shape, place, there), daemon=True))
            with environment(shape.env[place] if shape.env else {}):
                processes[-1].start()
            there.close()
            pipes.append(here)
        cards = [received(pipe) for pipe in pipes]
        for pipe in pipes:
            pipe.send(cards)
        for pipe in pipes:
            received(pipe)
        yield RingOfProcesses(pipes)
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.join(10)
            process.kill()


@contextmanager
def environment(more: Mapping[str, str]) -> Iterator[None]:
    """A process that is started meanwhile has these variables from its start: libraries read theirs while they load."""
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def received(pipe: Connection) -> Any:
    if not pipe.poll(DEADLINE_S):
        raise TimeoutError(f"a member said nothing for {DEADLINE_S:.0f} s")
    answer = pipe.recv()
    if isinstance(answer, Exception):
        raise answer
    return answer


# ---- In a member's own process


def _be_member(shape: RingShape, place: int, pipe: Connection) -> None:
    try:
        asyncio.run(_Member(shape, place, pipe).live())
    except (EOFError, BrokenPipeError):
        return  # the parent has closed its end
    except Exception as error:  # noqa: BLE001  # the parent raises it
        pipe.send(RuntimeError(f"{shape.names[place]}: {error!r}"))


class _Member:
    def __init__(self, shape: RingShape, place: int, pipe: Connection) -> None:
        self._shape = shape
        self._place = place
        self._name = shape.names[place]
        self._pipe = pipe
        self._mlx = MlxThread()
        self._links: dict[str, Link] = {}
        self._served: asyncio.Event = asyncio.Event()
        self._epoch: Epoch | None = None
        self._record: Mapping[str, Any] = {}  # of the latest answer

    async def record(self) -> Mapping[str, Any]:
        return self._record

    async def live(self) -> None:
        """Until the parent goes."""
        hop_s = self._shape.hop_s
        endpoint = Endpoint(lambda deliver: Delayed(deliver, hop_s, None), host=HOST, interfaces=system_interfaces)
        try:
            await self._link(endpoint, make_identity())
            start, end = self._shape.cuts[self._place : self._place + 2]
            shard = await self._mlx.run(self._shape.make_shard, start, end, self._place == 0)
            make_draft = self._shape.make_draft if self._place == 0 else None
            draft = await self._mlx.run(make_draft) if make_draft else None
            self._epoch = self._begin(shard, draft)
            self._served.set()
            await self._obey()
        finally:
            if self._epoch is not None:
                await self._epoch.close(Interrupted("the benchmark is over"))
            await endpoint.close()
            self._mlx.close()

    async def answer(self, prompts: Sequence[Sequence[int]], tokens: int, guesses: int) -> Sequence[Answered]:
        began = time.perf_counter()
        return await asyncio.gather(*(self._answer(prompt, tokens, guesses, began) for prompt in prompts))

    async def spent_s(self) -> float:
        return time.process_time()

    async def echo(self, size: int, times: int) -> None:
        stream = await self._links[self._shape.names[1]].open(ECHO)
        message = bytes(size)
        for _ in range(times):
            await stream.send(message)
            await stream.receive()
        stream.finish()

    async def call_thread(self, times: int) -> None:
        for _ in range(times):
            await self._mlx.run(time.monotonic)

    async def _obey(self) -> None:
        self._pipe.send("ready")
        while True:
            what, arguments = await asyncio.to_thread(self._pipe.recv)
            self._pipe.send(await getattr(self, what)(*arguments))

    async def _link(self, endpoint: Endpoint, me: Identity) -> None:
        self._pipe.send((self._name, to_proto(endpoint.candidates()).SerializeToString(), me.fingerprint))
        cards: Sequence[Card] = await asyncio.to_thread(self._pipe.recv)
        neighbours = {(self._place + step) % len(cards) for step in (-1, 1)} - {self._place}
        links = [self._dial(endpoint, me, cards[place]) for place in sorted(neighbours)]
        await asyncio.gather(*links)

    async def _dial(self, endpoint: Endpoint, me: Identity, card: Card) -> None:
        name, candidates, fingerprint = card
        self._links[name] = await endpoint.connect(
            session=SESSION,
            key=KEY,
            me=me,
            peer_name=name,
            peer_fingerprint=fingerprint,
            candidates=from_proto(ring_pb2.Candidates.FromString(candidates)),
            deadline_s=LINK_DEADLINE_S,
            on_stream=self._serve,
        )

    async def _serve(self, stream: Stream) -> None:
        if stream.kind == ECHO:
            while (message := await stream.receive()) is not None:
                await stream.send(message)
        elif stream.kind == StreamKind.ACTIVATIONS:
            await self._served.wait()
            assert self._epoch is not None
            with self._epoch.holding(stream):
                await self._epoch.taker_for(stream.peer).take_frames(stream)

    def _begin(self, shard: Shard, draft: DraftModel | None) -> Epoch:
        shape = self._shape
        vocabulary = _vocabulary(shape.vocabulary)
        intake = Intake(text=PromptOfIds(vocabulary), vocabulary=vocabulary, context_tokens=shape.context_tokens)
        mlx = WatchedThread(NotedThread(self._mlx, Activity()), stalled=lambda _: None)
        return epochs.begin(
            name=self._name,
            proposal=shape.proposal,
            shard=shard,
            requests=RequestTable(intake) if self._place == 0 else None,
            mlx=mlx,
            link_to=self._links.__getitem__,
            ended=self._ended,
            busy=lambda _: None,
            limits=EngineLimits(),
            draft=RunningDraft(mlx, lambda: draft) if draft is not None else None,
        )

    def _ended(self, trace: RequestTrace, reason: str) -> None:
        self._record = trace.record(reason=reason, link_rtt_s={})

    async def _answer(self, prompt: Sequence[int], tokens: int, guesses: int, began: float) -> Answered:
        assert self._epoch is not None
        options = pb.Options(temperature=0.0, num_predict=tokens, guesses=guesses)
        question = Question(pb.GenerateRequest(prompt=" ".join(map(str, prompt)), options=options))
        ids: list[int] = []
        times: list[float] = []
        async with self._epoch.asked(question) as replies:
            is_done = False
            while not is_done:
                told = await replies.next()
                ids += told.tokens
                times += [time.perf_counter() - began] * len(told.tokens)
                is_done = told.reply.done
        return Answered(ids, times)


class PromptOfIds:
    """In place of a tokenizer: a prompt is its ids."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    async def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    async def ids(self, prompt: str, **_: Any) -> Sequence[int]:
        return [int(word) for word in prompt.split()]

    async def calls(self, text: str, **_: Any) -> Sequence[dict[str, Any]]:
        return ()

    def kill(self) -> None: ...
    async def close(self) -> None: ...


def _vocabulary(size: int) -> Vocabulary:
    """Every id is a word, and none ends an answer."""
    return Vocabulary(
        size=size,
        gaps=(),
        eos_ids=frozenset(),
        generation_config={},
        decoding=Decoding.read(None, lambda number: f"word{number}"),
    )
