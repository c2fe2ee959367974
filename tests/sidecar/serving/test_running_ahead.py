"""GuessCount that run ahead one by one, with a tiny real model on real links: the text is the one without guesses."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.serving.guessing.draft import Draft
from kafila_sidecar.serving.standstill import ModelThread
from tests.sidecar.serving.stages import NAMES, StageParty, answer, ask, party

pytestmark = pytest.mark.mlx

FIVE = (*NAMES, "eve")
RINGS: dict[str, Sequence[int]] = {"two": (0, 3, 6), "three": (0, 2, 4, 6), "five": (0, 1, 2, 3, 4, 6)}
PROMPT = "once upon a time"
RIGHT = 0.7  # of the guesses
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"repeat_penalty": 1.5},
    "seed": {"temperature": 1.0, "seed": 5, "repeat_penalty": 1.2, "top_k": 20},
}


class SingleStepShard(Shard):
    """Of a device that computes several tokens at once otherwise than one by one."""

    def learn_steps(self, before: Shard | None = None) -> None: ...


class Oracle:
    """Knows the texts that are to come, and errs."""

    token_s = None

    def __init__(self) -> None:
        self.texts: list[Sequence[int]] = []
        self._rng = random.Random(7)

    def begin(self, mlx: ModelThread) -> Draft:
        return self

    async def guesses(self, request: int, text: Sequence[int], most: int) -> Sequence[int]:
        await asyncio.sleep(0)
        known = next((one for one in self.texts if one[: len(PROMPT)] == list(text[: len(PROMPT)])), ())
        coming = known[len(text) : len(text) + most]
        return [token if self._rng.random() < RIGHT else (token + 1) % 256 for token in coming]

    def forget(self, request: int) -> None: ...

    async def free(self) -> None: ...


@asynccontextmanager
async def ring_of(folder: Path, data: Path, cuts: Sequence[int], oracle: Oracle) -> AsyncIterator[StageParty]:
    names = FIVE[: len(cuts) - 1]
    async with party(folder, data, *names, load_shard=SingleStepShard.load, drafts=lambda _: oracle) as made:
        await made.serve(cuts, names)
        yield made


async def traced(made: StageParty, request: pb.GenerateRequest) -> tuple[str, pb.GenerateReply, dict[str, Any]]:
    """The answer, and its record."""
    request.tells_context = True
    text, last = await answer(made["ada"], request)
    await made.until_free(10)
    return text, last, made["ada"].traces[-1]


@pytest.mark.parametrize(
    ("ring", "kind"),
    [
        ("three", "seed"),
        pytest.param("two", "greedy", marks=pytest.mark.long),
        pytest.param("five", "greedy", marks=pytest.mark.long),
        pytest.param("two", "seed", marks=pytest.mark.long),
        pytest.param("three", "greedy", marks=pytest.mark.long),
        pytest.param("five", "seed", marks=pytest.mark.long),
    ],
)
async def test_answer_when_an_oracle_that_errs_runs_ahead_then_it_is_the_one_without(
    tiny: Path, tmp_path: Path, ring: str, kind: str
) -> None:
    oracle, cuts = Oracle(), RINGS[ring]
    async with ring_of(tiny, tmp_path, cuts, oracle) as made:
        plain, last, without = await traced(made, ask(PROMPT, num_predict=80, guesses=0, **KINDS[kind]))
        oracle.texts.append(list(last.context))
        text, last_too, trace = await traced(made, ask(PROMPT, num_predict=80, **KINDS[kind]))
        assert (text, last_too.context) == (plain, last.context)
        assert without["guesses"] == 0
        assert trace["guesses"] == trace["guesses_ahead"]
        assert trace["circuits"] == 79
        if len(cuts) > 3:  # where the busiest stage idles for more than half, whatever else this machine does
            assert 0 < trace["guesses_right"] < trace["guesses_drafted"]
        assert not any(member.broken or member.misled for member in made.members)


@pytest.mark.parametrize(
    ("given_up", "broken"),
    [((8,), 1), pytest.param((3, 20), 0, marks=pytest.mark.long), pytest.param((12,), 2, marks=pytest.mark.long)],
)
async def test_answer_when_given_up_or_its_ring_breaks_while_guesses_run_ahead_then_nothing_is_left_and_it_goes_on(
    tiny: Path, tmp_path: Path, given_up: Sequence[int], broken: int
) -> None:
    """given_up: after so many replies. broken: the hop of that number."""
    oracle = Oracle()
    async with ring_of(tiny, tmp_path, RINGS["three"], oracle) as made:
        whole, last, _ = await traced(made, ask(PROMPT, num_predict=100, guesses=0, **KINDS["greedy"]))
        oracle.texts.append(list(last.context))
        for replies in given_up:
            generation = made["bob"].stage.generate(ask(PROMPT, num_predict=100, **KINDS["greedy"]))
            for _ in range(replies):
                await anext(generation)
            await generation.aclose()
            await made.until_free(10)
        pieces = made["ada"].stage.generate(ask(PROMPT, num_predict=100, **KINDS["greedy"]))
        text = "".join([(await anext(pieces)).text for _ in range(6)])
        await made.link_anew(NAMES[broken], NAMES[(broken + 1) % 3])
        async with asyncio.timeout(20):
            async for reply in pieces:
                text += reply.text
        assert text == whole
        await made.until_free(10)
        assert not any(member.broken or member.misled for member in made.members)
        assert not any(member.stage.active_sequences for member in made.members)


@pytest.mark.long
async def test_answers_when_a_conversation_goes_on_behind_guesses_that_ran_ahead_then_it_is_the_one_without(
    tiny: Path, tmp_path: Path
) -> None:
    """What was on its way when the answer before ended is void on every stage."""
    oracle = Oracle()
    given = {"repeat_penalty": 1.5, "num_predict": 30}
    async with ring_of(tiny, tmp_path, RINGS["three"], oracle) as made:
        plain, last, _ = await traced(made, ask(PROMPT, guesses=0, **given))
        following, further, _ = await traced(made, ask(PROMPT + plain, guesses=0, **given))
        oracle.texts.append([*further.context, *further.context[-12:]])  # more than is told
        assert (await traced(made, ask(PROMPT, **given)))[0] == plain
        assert (await traced(made, ask(PROMPT + plain, **given)))[0] == following
        assert last.output_tokens == 30
        assert not any(member.broken or member.misled for member in made.members)
