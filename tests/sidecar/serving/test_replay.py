"""An answer that goes on: cut at any moment, by the loss of any member but the asker's, it is the uninterrupted one."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.net.link.stream import StreamKind
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from kafila_sidecar.serving.engine import EngineLimits
from kafila_sidecar.session.coordination.effects import Fault
from tests.sidecar.serving.stages import LIMITS, NAMES, StageMember, StageParty, answer, ask, party
from tests.support.saying import BLOCKS as SAYING_BLOCKS
from tests.support.saying import saying_folder
from tests.support.vocabularies import vocabulary

pytestmark = pytest.mark.mlx

VARIED: dict[str, Any] = {"repeat_penalty": 1.5}  # or a random model soon repeats itself
SEEDED: dict[str, Any] = {"temperature": 1.0, "seed": 11}
DRAWN: dict[str, Any] = {"temperature": 1.3, "seed": 5, "presence_penalty": 0.7, "repeat_last_n": 9, "top_k": 20}
PROMPT = "once upon a time there was"
ASKER = "dan"  # stands by until the others are gone
LOSSES = ("stage", "head", "stage then head", "head then stage", "nobody")


@dataclass
class LosingParty:
    """Four members, of whom some are lost one after another; what is left plans again at once, or a moment later."""

    made: StageParty
    alive: list[str]
    blocks: int = 6
    concurrency: int = 2

    async def serve(self, *, head_last: bool = False) -> None:
        order = [name for name in self.alive if name != ASKER] or [ASKER]
        if head_last:
            order.reverse()
        edges = [self.blocks * at // len(order) for at in range(len(order) + 1)]
        self.order = order
        await self.made.serve(edges, order, concurrency=self.concurrency, members=self.alive)

    async def lose(self, role: str, *, pause_s: float = 0.0) -> None:
        """The member with a role is gone without a word; `nobody`: it is only planned again."""
        if role == "head":
            await self.kill(self.order[0])
        elif role == "stage":
            await self.kill(self.order[-1])
        await self.made.stop(Fault("", "UNAVAILABLE", f"the {role} was lost"), members=self.alive)
        await asyncio.sleep(pause_s)
        await self.serve(head_last=role == "nobody")

    async def kill(self, name: str) -> None:
        self.alive.remove(name)
        await self.made.kill(name)


@pytest.fixture(params=[3, 64], ids=["small chunks", "one chunk"])
async def session(request: pytest.FixtureRequest, tiny: Path, tmp_path: Path) -> AsyncIterator[LosingParty]:
    limits = replace(LIMITS, engine=EngineLimits(prefill_chunk_tokens=request.param))
    async with party(tiny, tmp_path, *NAMES, limits=limits) as made:
        formed = LosingParty(made, list(NAMES))
        await formed.serve()
        yield formed


async def cut(
    session: LosingParty, member: StageMember, request: pb.GenerateRequest, losses: Sequence[tuple[int, str]]
) -> tuple[str, pb.GenerateReply]:
    """The answer while members are lost after so many replies."""
    texts, at, replies, left = list[str](), 0, member.stage.generate(request), list(losses)
    last = pb.GenerateReply()
    while True:
        while left and left[0][0] <= at:
            await session.lose(left.pop(0)[1])
        try:
            last = await anext(replies)
        except StopAsyncIteration:
            return "".join(texts), last
        texts.append(last.text)
        at += 1


def counts(last: pb.GenerateReply) -> tuple[bool, int, int, int]:
    return last.done, last.done_reason, last.prompt_tokens, last.output_tokens


ASKED = {
    "greedy": ask(PROMPT, num_predict=24, **VARIED),
    "seeded": ask(PROMPT, num_predict=24, **SEEDED),
    "penalties": ask(PROMPT, num_predict=24, **DRAWN),
}


@pytest.mark.parametrize("request_", ASKED.values(), ids=ASKED.keys())
@pytest.mark.parametrize("roles", LOSSES)
async def test_answer_when_members_are_lost_then_it_is_the_uninterrupted_one(
    session: LosingParty, request_: pb.GenerateRequest, roles: str
) -> None:
    expected, whole = await answer(session.made[ASKER], request_)
    draw = random.Random(f"{roles} {request_.options.seed}")
    moments = sorted(draw.randrange(24) for _ in roles.split(" then "))
    text, last = await cut(
        session, session.made[ASKER], request_, list(zip(moments, roles.split(" then "), strict=True))
    )
    assert (text, counts(last)) == (expected, counts(whole))
    assert last.prompt_s > 0
    assert last.output_s > 0
    await session.made.until_free(members=session.alive)


FORMAT = json.dumps({"type": "array", "items": {"enum": ["x", "yz", 7]}, "minItems": 9})


@pytest.mark.parametrize("moment", [1, 4, 9, 15])
async def test_answer_held_to_a_format_with_log_probabilities_when_the_head_is_lost_then_both_go_on(
    session: LosingParty, moment: int
) -> None:
    """A stop string that never comes whole holds text back, and what belongs to it."""
    request = ask(PROMPT, num_predict=24, stop=['"x","yz","x","yz"'], **SEEDED)
    request.format, request.logprobs, request.top_logprobs = FORMAT, True, 3
    whole = [reply async for reply in session.made[ASKER].stage.generate(request)]
    told, replies = list[pb.GenerateReply](), session.made[ASKER].stage.generate(request)
    async for reply in replies:
        told.append(reply)
        if len(told) == moment:
            await session.lose("head")
    assert "".join(one.text for one in told) == "".join(one.text for one in whole)
    assert spelt(told) == spelt(whole)
    assert all(one.logprob <= 0 and len(one.top) == 3 for reply in told for one in reply.logprobs)


def spelt(told: Sequence[pb.GenerateReply]) -> list[bytes]:
    """What the log probabilities are of."""
    return [one.token for reply in told for one in reply.logprobs]


@pytest.mark.parametrize("moment", range(0, 14))
async def test_answer_when_the_head_is_lost_at_each_moment_then_the_same(session: LosingParty, moment: int) -> None:
    request = ask(PROMPT, num_predict=12, **SEEDED)
    expected, whole = await answer(session.made[ASKER], request)
    text, last = await cut(session, session.made[ASKER], request, [(moment, "head")])
    assert (text, counts(last)) == (expected, counts(whole))


async def test_answer_of_the_heads_own_client_when_it_stays_or_gives_the_head_away_then_it_goes_on(
    session: LosingParty,
) -> None:
    request = ask(PROMPT, num_predict=24, **SEEDED)
    expected, whole = await answer(session.made["ada"], request)
    for role in ("stage", "nobody"):  # the second makes another member the head
        text, last = await cut(session, session.made["ada"], request, [(7, role)])
        assert (text, counts(last)) == (expected, counts(whole))
    assert session.order[0] != "ada"


async def test_answer_when_its_asker_becomes_the_head_then_it_goes_on_there(session: LosingParty) -> None:
    request = ask(PROMPT, num_predict=24, **SEEDED)
    expected, whole = await answer(session.made[ASKER], request)
    text, last = await cut(session, session.made[ASKER], request, [(3, "head"), (9, "head"), (15, "head")])
    assert session.order == [ASKER]
    assert (text, counts(last)) == (expected, counts(whole))


async def test_answers_when_they_wait_for_their_turn_or_read_their_prompt_then_all_come_whole(
    session: LosingParty,
) -> None:
    requests = [ask(f"{PROMPT} {number}" * 3, num_predict=6, seed=number, temperature=1.0) for number in range(6)]
    expected = [(await answer(session.made[ASKER], request))[0] for request in requests]
    for turns, role in ((0, "stage"), (9, "head"), (40, "nobody")):
        tasks = [asyncio.create_task(answer(session.made[ASKER], request)) for request in requests]
        for _ in range(turns):
            await asyncio.sleep(0)
        await session.lose(role, pause_s=0.05)
        assert [text for text, _ in await asyncio.gather(*tasks)] == expected
        await session.made.until_free(members=session.alive)


async def test_answer_when_losses_follow_each_other_before_it_goes_on_then_none_is_too_many(
    session: LosingParty,
) -> None:
    request = ask(PROMPT * 4, num_predict=24, **SEEDED)
    expected, _ = await answer(session.made[ASKER], request)
    pieces = session.made[ASKER].stage.generate(request)
    text = "".join([(await anext(pieces)).text for _ in range(5)])
    rest = asyncio.create_task(_rest(pieces))
    for turns, role in ((3, "stage"), (0, "nobody"), (25, "nobody"), (8, "head"), (2, "nobody")):
        for _ in range(turns):
            await asyncio.sleep(0)
        await session.lose(role)
    assert text + await rest == expected


async def test_answers_when_the_head_is_lost_then_what_had_begun_goes_before_what_waited(
    tiny: Path, tmp_path: Path
) -> None:
    async with party(tiny, tmp_path, *NAMES) as made:
        session = LosingParty(made, list(NAMES), concurrency=1)
        await session.serve()
        begun = made[ASKER].stage.generate(ask(PROMPT, num_predict=40, guesses=0))
        await anext(begun)
        waiting = asyncio.create_task(answer(made["bob"], ask(PROMPT, num_predict=4)))
        await asyncio.sleep(0.05)
        going_on = asyncio.create_task(_rest(begun))
        await session.lose("head")  # bob is the next one
        assert session.order[0] == "bob"
        await asyncio.gather(waiting, going_on)
        await made.until_free(members=session.alive)
        assert [(run["replays"], run["output_tokens"]) for run in made["bob"].traces] == [(1, 40), (0, 4)]


async def test_request_when_it_comes_while_the_session_is_planned_again_then_it_waits(session: LosingParty) -> None:
    request = ask(PROMPT)
    expected, _ = await answer(session.made[ASKER], request)
    await session.made.stop(members=session.alive)
    asking = asyncio.create_task(answer(session.made[ASKER], request))
    await asyncio.sleep(0.05)
    assert not asking.done()
    await session.serve()
    assert (await asking)[0] == expected


async def test_answer_when_a_stop_string_is_half_said_then_it_is_neither_doubled_nor_lost(session: LosingParty) -> None:
    open_ended = ask(PROMPT, num_predict=30, **VARIED)
    whole, _ = await answer(session.made[ASKER], open_ended)
    for stop in (whole[8:14], whole[8:13] + "#"):  # one is said, of the other only the beginning
        request = ask(PROMPT, num_predict=30, stop=[stop], **VARIED)
        expected, wanted = await answer(session.made[ASKER], request)
        for moment in range(4, 9):
            text, last = await cut(session, session.made[ASKER], request, [(moment, "nobody")])
            assert (text, counts(last)) == (expected, counts(wanted))


async def test_trace_when_an_answer_was_interrupted_then_each_run_says_which_it_was(session: LosingParty) -> None:
    await cut(session, session.made[ASKER], ask(PROMPT, num_predict=24), [(4, "stage"), (9, "stage")])
    runs = session.made["ada"].traces
    async with asyncio.timeout(5):
        while len(runs) < 3:  # noqa: ASYNC110  # a trace is told when its sequence is cleared away
            await asyncio.sleep(0.005)
    assert [run["ended"] for run in runs] == ["interrupted", "interrupted", "length"]
    assert [run["replays"] for run in runs] == [0, 1, 2]
    assert runs[0]["replayed_tokens"] == 0
    assert 4 <= runs[1]["replayed_tokens"] <= runs[0]["output_tokens"]
    assert runs[-1]["output_tokens"] == 24


SAID = "日語\n ifb  the quick 🐫🐫 don't <td>\n\n\naaaa"
CHAT = "\x02kafila1 " + json.dumps({"messages": [{"role": "user", "content": "Say it! <|answer|>"}]}) + "\x03"


@pytest.mark.parametrize("kind", ["byte_level", "keeping_spaces", "sentencepiece_bpe"])
async def test_characters_of_many_tokens_when_cut_within_then_shown_once_and_whole(tmp_path: Path, kind: str) -> None:
    folder = vocabulary(tmp_path / "model", kind)
    ids = Tokenizer.load(folder).backend.encode(SAID, add_special_tokens=False).ids
    saying_folder(folder, ids, padding=7)
    async with party(folder, tmp_path / "data", *NAMES) as made:
        session = LosingParty(made, list(NAMES), blocks=SAYING_BLOCKS)
        await made.serve((0, 1, SAYING_BLOCKS), NAMES[:2])
        session.order = list(NAMES[:2])
        request = ask(CHAT, num_predict=200)
        _, whole = await answer(made[ASKER], request)
        for moment in range(0, len(ids) + 1, 3):
            sent, last = await moved(session, request, moment)
            frames = [json.loads(frame) for frame in sent.split("\x1e")[1:]]
            assert "".join(frame["c"] for frame in frames) == SAID
            assert counts(last) == counts(whole)


async def moved(session: LosingParty, request: pb.GenerateRequest, moment: int) -> tuple[str, pb.GenerateReply]:
    """The answer when another member becomes the head after so many replies."""
    pieces, sent, last = session.made[ASKER].stage.generate(request), "", pb.GenerateReply()
    async for last in _moved_at(session, pieces, moment):
        sent += last.text
    return sent, last


async def _moved_at(
    session: LosingParty, pieces: AsyncIterator[pb.GenerateReply], moment: int
) -> AsyncIterator[pb.GenerateReply]:
    at = 0
    while True:
        if at == moment:
            await session.made.stop()
            session.order.reverse()
            await session.made.serve((0, 1, SAYING_BLOCKS), session.order)
        try:
            yield await anext(pieces)
        except StopAsyncIteration:
            return
        at += 1


async def _rest(pieces: AsyncIterator[pb.GenerateReply]) -> str:
    return "".join([piece.text async for piece in pieces])


# ---- What a head takes of an answer so far


async def test_request_when_asked_again_with_the_same_id_then_the_former_run_is_dropped(session: LosingParty) -> None:
    link = session.made[ASKER].links.to("ada")
    request = ring_pb2.Request(epoch=1, generate=ask(num_predict=-1).SerializeToString(), id=b"k" * 16)
    first = await link.open(StreamKind.REQUEST)
    await first.send(request.SerializeToString())
    await first.receive(5)
    second = await link.open(StreamKind.REQUEST)
    await second.send(request.SerializeToString())
    assert await second.receive(5) is not None
    answers = [ring_pb2.Answer()]
    while not answers[-1].HasField("interrupted"):
        answers.append(ring_pb2.Answer.FromString(await first.receive(5) or b""))
    async with asyncio.timeout(5):
        while session.made["ada"].stage.active_sequences > 1:  # noqa: ASYNC110  # the stages tell nobody
            await asyncio.sleep(0.005)
    second.reset()
    await session.made.until_free()


@pytest.mark.parametrize(
    "replay",
    [
        ring_pb2.Replay(beginning=ring_pb2.Beginning(prompt=[5, 1 << 20])),
        ring_pb2.Replay(beginning=ring_pb2.Beginning(prompt=[5]), answer=[1 << 31]),
        ring_pb2.Replay(beginning=ring_pb2.Beginning(prompt=[5] * 200), answer=[6] * 100),
    ],
    ids=["prompt", "answer", "too long"],
)
async def test_replay_when_no_run_can_have_told_it_then_refused(session: LosingParty, replay: ring_pb2.Replay) -> None:
    stream = await session.made[ASKER].links.to("ada").open(StreamKind.REQUEST)
    request = ring_pb2.Request(epoch=1, generate=ask().SerializeToString(), id=bytes(16), replay=replay)
    await stream.send(request.SerializeToString())
    answered = ring_pb2.Answer.FromString(await stream.receive(5) or b"")
    assert answered.refusal.code == InvalidInput.code


async def test_replay_when_only_the_end_was_not_told_then_it_ends_at_once(session: LosingParty) -> None:
    request = ask(PROMPT, num_predict=5, **SEEDED)
    stream = await session.made[ASKER].links.to("ada").open(StreamKind.REQUEST)
    asked = ring_pb2.Request(epoch=1, generate=request.SerializeToString(), id=bytes(16))
    await stream.send(asked.SerializeToString())
    tokens, beginning = list[int](), ring_pb2.Beginning()
    while message := await stream.receive(5):
        told = ring_pb2.Answer.FromString(message)
        tokens += told.tokens
        beginning = told.beginning if told.HasField("beginning") else beginning
    assert len(tokens) == 5
    again = await session.made[ASKER].links.to("ada").open(StreamKind.REQUEST)
    asked.replay.CopyFrom(ring_pb2.Replay(beginning=beginning, answer=tokens, times=1))
    await again.send(asked.SerializeToString())
    answers = [ring_pb2.Answer.FromString(message) async for message in _messages(again)]
    last = pb.GenerateReply.FromString(answers[-1].reply)
    assert (last.done, last.text, last.output_tokens, len(answers)) == (True, "", 5, 2)


async def _messages(stream: Any) -> AsyncIterator[bytes]:
    while message := await stream.receive(5):
        yield message
