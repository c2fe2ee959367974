"""The head's engine with a tiny real model, on one to three stages that are joined by real links."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import Exhausted, InvalidInput, TimedOut
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.serving.engine import EngineLimits
from kafila_sidecar.serving.holding import LoadShard
from tests.sidecar.serving.stages import CONTEXT, LIMITS, NAMES, StageParty, answer, ask, party, refusal

pytestmark = pytest.mark.mlx

PROMPT = "once upon a time"
VARIED: dict[str, Any] = {"repeat_penalty": 1.5}  # or a random model soon repeats itself
AHEAD, HANDING = "one, ahead", "two, handing over"
RINGS: dict[str, Sequence[int]] = {
    "one": (0, 6),
    AHEAD: (0, 6),
    "two": (0, 2, 6),
    HANDING: (0, 2, 6),
    "three": (0, 2, 4, 6),
}


@pytest.fixture(params=RINGS)
async def ring(request: pytest.FixtureRequest, tiny: Path, tmp_path: Path) -> AsyncIterator[StageParty]:
    """A party that serves over one, two or three stages."""
    cuts = RINGS[request.param]
    names = NAMES[: len(cuts) - 1]
    load_shard = {AHEAD: load_ahead, HANDING: load_handing}.get(request.param, Shard.load)
    async with party(tiny, tmp_path, *names, load_shard=load_shard) as made:
        await made.serve(cuts, names)
        yield made


def load_ahead(**given: Any) -> Shard:
    """A shard that runs ahead of what is asked, as those on GPUs do that have all blocks."""
    shard = Shard.load(**given)
    shard.runs_ahead = True
    return shard


def load_handing(**given: Any) -> Shard:
    """A shard that computes a run while the next one is built, as those on GPUs do."""
    shard = Shard.load(**given)
    shard.hands_over = True
    return shard


@asynccontextmanager
async def serving(folder: Path, data: Path, limits: EngineLimits) -> AsyncIterator[StageParty]:
    """Four members, of whom three hold a stage; the engine takes on what `limits` says."""
    async with party(folder, data, *NAMES, limits=replace(LIMITS, engine=limits)) as made:
        await made.serve(RINGS["three"], NAMES[:3])
        yield made


@pytest.fixture
async def three(tiny: Path, tmp_path: Path) -> AsyncIterator[StageParty]:
    async with serving(tiny, tmp_path, EngineLimits()) as made:
        yield made


def greedy(folder: Path, prompt: str, count: int, *, chat: bool = False) -> str:
    """The text of mlx-lm itself."""
    from mlx_lm import load
    from mlx_lm.generate import stream_generate
    from mlx_lm.sample_utils import make_logits_processors

    loaded: Any = load(str(folder))
    model, tokenizer = loaded
    given: Any = prompt
    if chat:
        given = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)
    varied = make_logits_processors(repetition_penalty=VARIED["repeat_penalty"], repetition_context_size=64)
    steps = stream_generate(model, tokenizer, given, max_tokens=count, logits_processors=varied)
    return "".join(step.text for step in steps)


async def test_generate_when_greedy_then_the_text_of_the_whole_model(ring: StageParty, tiny: Path) -> None:
    text, last = await answer(ring["ada"], ask(PROMPT, num_predict=40, **VARIED))
    assert text == greedy(tiny, PROMPT, 40)
    assert last.done
    assert (last.done_reason, last.prompt_tokens, last.output_tokens) == (pb.DONE_REASON_LENGTH, len(PROMPT), 40)
    assert 0 < last.prompt_s < 60
    assert 0 < last.output_s < 60
    await ring.until_free()


async def test_generate_when_a_chat_then_the_template_is_applied_and_the_text_framed(
    ring: StageParty, tiny: Path
) -> None:
    raw = "\x02kafila1 " + json.dumps({"messages": [{"role": "user", "content": PROMPT}]}) + "\x03"
    text, _ = await answer(ring["ada"], ask(raw, num_predict=20, **VARIED))
    frames = [json.loads(frame) for frame in text.split("\x1e")[1:]]
    assert "".join(frame["c"] for frame in frames) == greedy(tiny, PROMPT, 20, chat=True)


async def test_generate_when_asked_at_another_member_then_the_same_answer(three: StageParty) -> None:
    expected, _ = await answer(three["ada"], ask())
    for name in NAMES[1:]:  # two stages and one that stands by
        text, last = await answer(three[name], ask())
        assert (text, last.done, last.output_tokens) == (expected, True, 12)
    await three.until_free()


async def test_generate_when_one_that_runs_ahead_stops_early_then_the_next_is_as_if_it_had_not(
    tiny: Path, tmp_path: Path
) -> None:
    """The one is cut off by its reader, the other goes on from what is kept of it."""
    async with party(tiny, tmp_path, NAMES[0], load_shard=load_ahead) as made:
        await made.serve(RINGS[AHEAD], NAMES[:1])
        whole, _ = await answer(made["ada"], ask(PROMPT, num_predict=40, **VARIED))
        stopped, _ = await answer(made["ada"], ask(PROMPT, num_predict=40, stop=[whole[20:23]], **VARIED))
        generation = made["ada"].stage.generate(ask(PROMPT, num_predict=100, **VARIED))
        await anext(generation)
        await generation.aclose()
        again, _ = await answer(made["ada"], ask(PROMPT, num_predict=40, **VARIED))
    assert stopped == whole[: whole.index(whole[20:23])]
    assert again == whole


async def test_generate_when_two_at_once_then_both_as_if_alone(ring: StageParty) -> None:
    prompts = ("once upon a time", "the capital of France")
    alone = [(await answer(ring["ada"], ask(prompt, num_predict=25, **VARIED)))[0] for prompt in prompts]
    both = await asyncio.gather(*(answer(ring["ada"], ask(prompt, num_predict=25, **VARIED)) for prompt in prompts))
    assert [text for text, _ in both] == alone
    await ring.until_free()


async def test_generate_when_many_at_once_then_runs_of_several_rows_and_each_as_if_alone(
    tiny: Path, tmp_path: Path
) -> None:
    prompts = ("once upon a time", "the capital of France", "a", "one, two, three, four, five, six")
    async with party(tiny, tmp_path, *NAMES[:3]) as made:
        await made.serve(RINGS["one"], NAMES[:1], concurrency=4)  # where all four wait for one stage
        alone = [(await answer(made["ada"], ask(prompt, num_predict=40, **VARIED)))[0] for prompt in prompts]
        assert {stage["rows"] for trace in made["ada"].traces for stage in trace["stages"]} == {1}
        asked = [
            answer(made[name], ask(prompt, num_predict=40, **VARIED))
            for name, prompt in zip(["ada", "bob", "cyd", "ada"], prompts, strict=True)
        ]
        together = await asyncio.gather(*asked)
        assert [text for text, _ in together] == alone
        await made.until_free()  # each has its record then
        assert max(stage["rows"] for trace in made["ada"].traces[-4:] for stage in trace["stages"]) > 1


async def test_generate_when_the_prompt_is_long_then_its_chunks_give_the_same_text(tiny: Path, tmp_path: Path) -> None:
    prompt = "a long story " * 12
    async with serving(tiny, tmp_path, EngineLimits(prefill_chunk_tokens=16)) as three:
        text, last = await answer(three["ada"], ask(prompt, **VARIED))
    assert last.prompt_tokens == len(prompt)
    assert text == greedy(tiny, prompt, 12)


async def test_generate_when_a_stop_string_comes_then_the_text_ends_before_it(three: StageParty) -> None:
    whole, _ = await answer(three["ada"], ask(num_predict=30, **VARIED))
    stop = whole[6:8]
    text, last = await answer(three["ada"], ask(num_predict=30, stop=[stop, "never said"], **VARIED))
    assert text == whole[: whole.index(stop)]
    assert last.output_tokens < 30
    assert last.done_reason == pb.DONE_REASON_STOP
    await three.until_free()


async def test_generate_when_the_answer_may_have_one_token_then_one(three: StageParty) -> None:
    text, last = await answer(three["ada"], ask(num_predict=1))
    assert (last.output_tokens, last.done_reason) == (1, pb.DONE_REASON_LENGTH)
    assert last.output_s == 0.0  # as in stock, where a single token is the prompt's
    whole, _ = await answer(three["ada"], ask())
    assert whole.startswith(text)


async def test_generate_when_the_context_is_full_then_it_ends(three: StageParty) -> None:
    text, last = await answer(three["ada"], ask("x" * (CONTEXT - 3), num_predict=-1))
    assert (last.prompt_tokens, last.output_tokens) == (CONTEXT - 3, 3)
    assert last.done_reason == pb.DONE_REASON_LENGTH
    assert text


async def test_generate_when_the_prompt_is_too_long_then_cut_or_refused(three: StageParty) -> None:
    for wanted, room in ((12, 12), (-1, CONTEXT // 4)):
        _, last = await answer(three["ada"], ask("x" * 500, num_predict=wanted))
        assert (last.prompt_tokens, last.output_tokens) == (CONTEXT - room, room)
    long = ask("x" * 500)
    long.truncate = False
    refused = await refusal(three["bob"], long)
    assert isinstance(refused, InvalidInput)
    assert "exceeds the context length" in str(refused)


async def test_generate_when_num_ctx_is_tiny_then_it_still_answers(three: StageParty) -> None:
    _, last = await answer(three["ada"], ask(num_ctx=1))
    assert (last.prompt_tokens, last.output_tokens) == (3, 1)


@pytest.mark.parametrize("options", [{"temperature": -1.0}, {"min_p": 2.0}, {"num_ctx": -4}], ids=str)
async def test_generate_when_an_option_is_out_of_range_then_it_answers_as_stock_does(
    three: StageParty, options: dict[str, Any]
) -> None:
    _, last = await answer(three["cyd"], ask(num_predict=4, **options))
    assert last.done


REFUSED = {
    "empty prompt": ask(""),
    "images": pb.GenerateRequest(prompt="x", images=1),
    "temperature": ask(temperature=float("nan")),
    "envelope": ask("\x02kafila1 {"),
    "message without a role": ask('\x02kafila1 {"messages":[{"content":"x"}]}\x03'),
    "half a surrogate": ask('\x02kafila1 {"messages":[{"role":"user","content":"\\ud800"}]}\x03'),
}


@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED.keys())
async def test_generate_when_nonsense_then_invalid_at_the_head_and_elsewhere(
    three: StageParty, request_: pb.GenerateRequest
) -> None:
    for name in ("ada", "cyd"):
        assert isinstance(await refusal(three[name], request_), InvalidInput)
    assert not any(three.held.values())


async def test_generate_when_the_queue_is_full_then_refused(tiny: Path, tmp_path: Path) -> None:
    async with serving(tiny, tmp_path, EngineLimits(most_waiting=2)) as three:
        running = [asyncio.ensure_future(answer(three["ada"], ask(num_predict=100))) for _ in range(5)]
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        refused = [one.exception() for one in done if one.exception()]
        assert [type(error) for error in refused] == [Exhausted]
        texts = {task.result()[0] for task in running if (await asyncio.wait([task])) and not task.exception()}
        assert len(texts) == 1
        await three.until_free()


async def test_generate_when_no_sequence_comes_free_then_it_times_out_and_those_that_run_go_on(
    tiny: Path, tmp_path: Path
) -> None:
    async with serving(tiny, tmp_path, EngineLimits(wait_deadline_s=0.05)) as three:
        running = [three["ada"].stage.generate(ask(num_predict=-1)) for _ in range(2)]
        for one in running:
            await anext(one)
        assert isinstance(await refusal(three["bob"], ask()), TimedOut)
        for one in running:
            await anext(one)
            await one.aclose()
        await three.until_free()


async def test_generate_when_its_caller_reads_slowly_then_the_answer_is_made_and_waits(three: StageParty) -> None:
    slow = three["ada"].stage.generate(ask(num_predict=30, **VARIED))
    first = await anext(slow)
    await three.until_free()
    rest = [reply async for reply in slow]
    assert rest[-1].output_tokens == 30
    whole, _ = await answer(three["ada"], ask(num_predict=30, **VARIED))
    assert first.text + "".join(reply.text for reply in rest) == whole


@pytest.mark.parametrize("name", ["ada", "bob", "dan"])
async def test_generate_when_closed_after_any_reply_then_no_stage_keeps_the_sequence(
    three: StageParty, name: str
) -> None:
    for replies in range(4):
        generation = three[name].stage.generate(ask(num_predict=100))
        for _ in range(replies):
            await anext(generation)
        await generation.aclose()
        await three.until_free()
    await answer(three["ada"], ask())


@pytest.mark.parametrize("name", ["ada", "bob"])
async def test_generate_when_cancelled_at_any_moment_then_no_stage_keeps_the_sequence(
    three: StageParty, name: str
) -> None:
    for turns in (*range(0, 60, 3), 90, 150, 300):
        task = asyncio.create_task(answer(three[name], ask(num_predict=100)))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # a client that goes away may do so again while its request is being cleared away
        await asyncio.wait([task])
        await three.until_free()
    text, _ = await answer(three["ada"], ask())
    assert len(text) > 0
    assert three["bob"].broken == three["cyd"].broken == []


async def test_trace_when_a_request_ends_then_its_numbers_add_up(tiny: Path, tmp_path: Path) -> None:
    async with serving(tiny, tmp_path, EngineLimits(prefill_chunk_tokens=8)) as three:
        await answer(three["bob"], ask("x" * 20, num_predict=10))
        await three.until_free()
        (trace,) = three["ada"].traces
    assert (trace["prompt_tokens"], trace["output_tokens"], trace["ended"]) == (20, 10, "length")
    assert [stage["member"] for stage in trace["stages"]] == list(NAMES[:3])
    assert all(stage["measured_s"] > 0 for stage in trace["stages"])
    assert sum(hop["measured_s"] for hop in trace["hops"]) == pytest.approx(trace["network_s"])
    assert trace["network_share"] == pytest.approx(trace["network_s"] / trace["circuit_s"])
    assert sum(stage["measured_s"] for stage in trace["stages"]) + trace["network_s"] < 1.5 * trace["circuit_s"]
    assert trace["queue_s"] + trace["prefill_s"] == pytest.approx(trace["ttft_s"], abs=1e-6)
    assert trace["tokens_per_s"] == pytest.approx(9 / trace["decode_s"])
    width = 4 * 64
    assert [hop["bytes"] for hop in trace["hops"]] == [
        29 * width,
        29 * width,
        10 * width,
    ]  # of a prompt its last token comes back


async def test_trace_when_cancelled_or_refused_then_it_says_so(three: StageParty) -> None:
    generation = three["ada"].stage.generate(ask(num_predict=100))
    await anext(generation)
    await generation.aclose()
    await three.until_free()
    assert three["ada"].traces[-1]["ended"] == "cancelled"
    json.dumps(three["ada"].traces)


@pytest.mark.parametrize("load_shard", [Shard.load, load_handing], ids=["run by run", "handing over"])
async def test_generate_when_many_come_and_go_at_random_then_each_has_its_own_text_and_nothing_is_left(
    tiny: Path, tmp_path: Path, load_shard: LoadShard
) -> None:
    rng = random.Random(5)
    prompts = [f"{number} {'word ' * rng.randint(0, 30)}" for number in range(4)]
    varied: list[dict[str, Any]] = [
        VARIED,
        {"temperature": 0.9, "seed": 3},
        {"temperature": 1.2, "top_k": 8, "seed": 4},
    ]
    kinds = [(prompt, options) for prompt in prompts for options in varied]
    limits = replace(LIMITS, engine=EngineLimits(prefill_chunk_tokens=32))
    async with party(tiny, tmp_path, *NAMES, limits=limits, load_shard=load_shard) as made:
        await made.serve(RINGS["three"], NAMES[:3], concurrency=6)
        texts = [(await answer(made["ada"], ask(prompt, num_predict=24, **options)))[0] for prompt, options in kinds]

        async def one(kind: int) -> None:
            await asyncio.sleep(rng.random())
            prompt, options = kinds[kind]
            answering = asyncio.ensure_future(answer(made[rng.choice(NAMES)], ask(prompt, num_predict=24, **options)))
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() / 2)
                answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                text, last = await answering
                assert (text, last.output_tokens) == (texts[kind], 24)

        await asyncio.gather(*(one(rng.randrange(len(kinds))) for _ in range(40)))
        await made.until_free()
        assert not any(member.broken or member.misled for member in made.members)
