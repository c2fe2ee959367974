"""Guesses through a head's real engine and real workers, with a model that is a hash of all that it was fed: a token
lost, doubled, out of order or not forgotten in any block's cache gives another text. No MLX, and links in memory."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, cast

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput, KafilaError
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.finite import check_state
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.runtime.shard.picking import CameTrue, Guessed
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.engine import Engine, EngineLimits
from kafila_sidecar.serving.frames.hop import HopSender
from kafila_sidecar.serving.intake.intake import Intake
from kafila_sidecar.serving.intake.question import Question
from kafila_sidecar.serving.intake.requests import RequestTable
from kafila_sidecar.serving.ring import Interrupted, Ring
from kafila_sidecar.serving.trace import RequestTrace
from kafila_sidecar.serving.worker import Bounds, Worker
from tests.sidecar.serving.rings import PlainThread, settle
from tests.sidecar.serving.stages import plan
from tests.sidecar.serving.streams import OnStream, StreamWire
from tests.sim.model import (
    BLOCKS,
    CHUNK_TOKENS,
    CONTEXT,
    NUMBERS,
    VOCABULARY,
    HashShard,
    NumberPrompts,
    _mix,
    _read,
    right_answer,
)

NAMES = ("ada", "bob", "cyd", "dan", "eve")
RINGS: dict[str, Sequence[int]] = {"two": (0, 4, 8), "three": (0, 2, 5, 8), "five": (0, 1, 3, 4, 6, 8)}
RIGHT = 0.7  # of the oracle's guesses
PROMPTS = [(7, 9, 3 + at) for at in range(12)]


class ForgettingShard(HashShard):
    """It knows what its caches were before each token."""

    can_rewind = all_rewind = model_can_forget = True

    def __init__(self, start: int, end: int, exact: int) -> None:
        super().__init__(start, end)
        self.step_limits = StepLimits(exact, exact, 8)
        self._were: dict[int, dict[int, list[int]]] = {}

    def step(self, sequence: int, position: int, tokens: Sequence[int]) -> HiddenState:
        self.rewind(sequence, position)
        return self.embed_and_blocks(sequence, tokens)

    def rewind(self, sequence: int, position: int) -> None:
        if position < self.position(sequence):
            self._at[sequence] = (position, list(self._were[sequence][position]))

    def check_next(self, sequence: int, state: HiddenState) -> None:
        if not 0 < state.position <= self.position(sequence) and state.position != self.position(sequence):
            raise InvalidInput(f"a state at {state.position} came to a sequence at {self.position(sequence)}")
        check_state(state, self.entry)

    def run_blocks(self, sequence: int, state: HiddenState) -> HiddenState:
        if state.position:
            self.rewind(sequence, state.position)
        return super().run_blocks(sequence, state)

    def run_rows(self, rows: Sequence[tuple[int, HiddenState]], *, has_guesses: bool = False) -> list[HiddenState]:
        return [self.run_blocks(*row) for row in rows]

    def check_guesses(self, row: Guessed) -> CameTrue:
        kept: list[int] = []
        for at, x in enumerate(_read(row.state.payload)):
            kept.append(_mix(x) % VOCABULARY)
            row.sampler.take(kept[-1])
            if at == len(row.guesses) or kept[-1] != row.guesses[at]:
                break
        return CameTrue(kept)

    def release(self, sequence: int) -> None:
        super().release(sequence)
        self._were.pop(sequence, None)

    def _through(self, sequence: int, position: int, xs: Sequence[int]) -> HiddenState:
        made = []
        for at, x in enumerate(xs):
            self._were.setdefault(sequence, {})[position + at] = list(self._at[sequence][1])
            made.append(super()._through(sequence, position + at, [x]))
        payload = b"".join(bytes(one.payload) for one in made)
        return HiddenState(payload, "float32", (1, len(made), made[0].shape[2]), position)


class NumberOracle:
    """Knows every text, and errs."""

    token_s = None

    def __init__(self) -> None:
        self._rng = random.Random(3)

    async def guesses(self, request: int, text: Sequence[int], most: int) -> Sequence[int]:
        await asyncio.sleep(0)
        known = (*text[:3], *right_answer(tuple(text[:3]), CONTEXT))
        coming = known[len(text) : len(text) + most]
        return [token if self._rng.random() < RIGHT else (token + 1) % VOCABULARY for token in coming]

    def forget(self, request: int) -> None: ...


class PromptsAtOnce(NumberPrompts):
    """Turns of the loop are all that passes, so that a quick machine counts as many as a slow one."""

    async def ids(self, prompt: str, **_: Any) -> list[int]:
        return [int(word) for word in prompt.split()]


class PlayedRing:
    """A head and workers in memory; wires[i] leads from stage i to the next."""

    def __init__(self, cuts: Sequence[int], *, exact: int, concurrency: int = 2) -> None:
        names = NAMES[: len(cuts) - 1]
        self.records: list[dict[str, Any]] = []
        self.errors: list[BaseException] = []
        self.shards = [ForgettingShard(cuts[at], cuts[at + 1], exact) for at in range(len(names))]
        self.wires = [
            StreamWire(here, there, self._noting(at + 1))
            for at, (here, there) in enumerate(zip(names, [*names[1:], names[0]], strict=True))
        ]
        hops = [HopSender(peer=name, open_stream=wire.open) for name, wire in zip(names, self.wires, strict=True)]
        thread = cast(MlxThread, PlainThread())
        proposal = plan(1, [*range(len(names)), 6], names, concurrency)  # of so many stages, which is all that counts
        bounds = Bounds(sequences=2 * concurrency, tokens=CONTEXT, chunk_tokens=CHUNK_TOKENS)
        self.workers = [
            Worker(
                epoch=1,
                place=place,
                shard=cast(Shard, self.shards[place]),
                mlx=thread,
                hop=hops[place],
                is_last=place == len(names) - 1,
                bounds=bounds,
                rows=lambda users: min(users, 4),
            )
            for place in range(1, len(names))
        ]
        self.ring = Ring(
            epoch=1,
            hop=hops[0],
            order=names,
            last=HashShard.last,
            chunk_tokens=CHUNK_TOKENS,
            limits=self.shards[0].step_limits,
        )
        intake = Intake(text=cast(Any, PromptsAtOnce(cast(Any, None))), vocabulary=NUMBERS, context_tokens=CONTEXT)
        self.engine = Engine(
            shard=cast(Shard, self.shards[0]),
            mlx=thread,
            ring=self.ring,
            proposal=proposal,
            requests=RequestTable(intake),
            ended=self._ended,
            busy=lambda _: None,
            limits=EngineLimits(prefill_chunk_tokens=CHUNK_TOKENS),
            rows=lambda users: min(users, 4),
            draft=NumberOracle(),
        )

    async def answer(self, prompt: Sequence[int], *, replies: int | None = None) -> list[int]:
        """Its ids; given up after so many replies."""
        request = pb.GenerateRequest(prompt=" ".join(map(str, prompt)), options=pb.Options(num_predict=-1))
        ids: list[int] = []
        async with self.engine.asked(Question(request)) as told:
            while replies is None or len(ids) < replies:
                one = await told.next()
                ids += one.tokens
                if one.reply.done:
                    break
        return ids

    async def end(self) -> None:
        await self.engine.close(Interrupted("the test is over"))
        for one in self.workers:
            one.close()
        self.ring.fail(KafilaError("the test is over"))
        for wire in self.wires:
            await wire.end()

    def _noting(self, index: int) -> OnStream:
        async def serve(stream: Stream) -> None:
            taker = self.ring if index > len(self.workers) else self.workers[index - 1]
            try:
                await taker.take_frames(stream)
            except KafilaError as error:
                self.errors.append(error)

        return serve

    def _ended(self, trace: RequestTrace, reason: str) -> None:
        self.records.append(trace.record(reason=reason, link_rtt_s={}))


@pytest.mark.parametrize("exact", [1, 2, 8], ids=["ahead", "two-at-once", "eight-at-once"])
@pytest.mark.parametrize("cuts", RINGS.values(), ids=RINGS)
async def test_answers_when_an_oracle_that_errs_guesses_then_they_are_the_models(
    cuts: Sequence[int], exact: int
) -> None:
    made = PlayedRing(cuts, exact=exact)
    for prompt in PROMPTS:
        assert tuple(await made.answer(prompt)) == right_answer(prompt, CONTEXT)
    await settle()
    guesses, right, ahead = (
        sum(one[name] for one in made.records) for name in ("guesses", "guesses_right", "guesses_ahead")
    )
    assert 0 < right < guesses
    assert ahead == guesses or exact > 1
    assert not made.errors
    assert not any(shard.active for shard in made.shards if made.engine.resting == 0)
    await made.end()
    assert not any(shard.active for shard in made.shards)
    assert cuts[-1] == BLOCKS


@pytest.mark.parametrize("exact", [1, 8])
async def test_answers_when_several_run_and_some_are_given_up_then_the_others_are_the_models(exact: int) -> None:
    made = PlayedRing(RINGS["three"], exact=exact, concurrency=4)
    asked = [made.answer(prompt, replies=3 if at % 3 == 1 else None) for at, prompt in enumerate(PROMPTS)]
    for prompt, told in zip(PROMPTS, await asyncio.gather(*asked), strict=True):
        right = list(right_answer(prompt, CONTEXT))
        assert told == right[: len(told)]
        assert len(told) == len(right) or len(told) >= 3
    assert not made.errors
    await made.end()
    assert not any(shard.active for shard in made.shards)


@pytest.mark.parametrize("exact", [1, 8])
@pytest.mark.parametrize("broken", [0, 1, 2])
async def test_answers_when_the_ring_breaks_while_guesses_are_on_their_way_then_nothing_stays_behind(
    broken: int, exact: int
) -> None:
    made = PlayedRing(RINGS["three"], exact=exact)
    await made.answer(PROMPTS[0])
    going = asyncio.ensure_future(made.answer(PROMPTS[1]))
    await settle(150)
    made.wires[broken].cut()
    if not going.done():
        with pytest.raises(Interrupted):
            await going
    made.wires[broken].down = False
    await settle()
    assert not any(shard.active for shard in made.shards)
    assert tuple(await made.answer(PROMPTS[2])) == right_answer(PROMPTS[2], CONTEXT)
    await made.end()


@pytest.mark.parametrize("exact", [1, 8])
async def test_answers_when_one_was_given_up_in_its_midst_then_the_next_goes_on_over_what_every_stage_has(
    exact: int,
) -> None:
    """Guesses are on their way then: none of them counts as what the stages have."""
    made = PlayedRing(RINGS["three"], exact=exact)
    reused = 0
    for turns in range(3, 60, 8):
        prompt = (*PROMPTS[turns % len(PROMPTS)],)
        right = right_answer(prompt, CONTEXT)
        if len(right) < 30:
            continue
        asking = asyncio.ensure_future(made.answer(prompt))
        await settle(20 * turns)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await settle()
        told = right[: min(made.records[-1]["output_tokens"], len(right) // 2)]  # about as far as it came
        assert tuple(await made.answer((*prompt, *told))) == right[len(told) :]
        await settle()
        reused += made.records[-1]["reused_tokens"]
    assert reused > 0
    assert not made.errors
    await made.end()
    assert not any(shard.active for shard in made.shards)
