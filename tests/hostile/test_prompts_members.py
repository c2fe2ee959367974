"""One member that asks for too much: others' requests go in between, and the head lives."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafila_sidecar.errors import Exhausted, InvalidInput
from kafila_sidecar.runtime.mlx_thread import prefer_openblas
from kafila_sidecar.runtime.text.apart.text_process import TextProcess
from kafila_sidecar.serving.engine import EngineLimits
from kafila_sidecar.serving.intake.limits import MOST_REQUEST_BYTES
from kafila_sidecar.serving.intake.shares import MOST_WAITING_OF_ONE
from tests.sidecar.serving.stages import LIMITS, StageParty, TextHere, answer, ask, party, refusal

pytestmark = pytest.mark.mlx

prefer_openblas()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.support.tiny import tiny_folder

    return tiny_folder(tmp_path_factory.mktemp("tiny") / "model", seed=16, config={"eos_token_id": 258})


class Gated(TextHere):
    """Renders one prompt each time it may, in the order in which they came, and notes which."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.may = asyncio.Semaphore(0)
        self.came: list[str] = []

    async def ids(self, prompt: str, **fit: Any) -> Sequence[int]:
        self.came.append(prompt)
        await self.may.acquire()
        return await super().ids(prompt, **fit)


@pytest.fixture
async def gated(tiny: Path, tmp_path: Path) -> AsyncIterator[tuple[StageParty, list[Gated]]]:
    texts: list[Gated] = []

    def make(folder: Path) -> Gated:
        texts.append(Gated(folder))
        return texts[-1]

    async with party(tiny, tmp_path, "ada", "bob", "cyd", text=make) as made:
        await made.serve((0, 6), ("ada",))
        yield made, texts


async def test_prompts_when_one_member_has_many_then_each_other_waits_for_one_of_them_at_most(
    gated: tuple[StageParty, list[Gated]],
) -> None:
    party, (text,) = gated
    flood = [asyncio.create_task(answer(party["bob"], ask(f"bob {n}", num_predict=1))) for n in range(20)]
    async with asyncio.timeout(10):
        while not text.came:  # noqa: ASYNC110 - it comes over a link
            await asyncio.sleep(0.005)
        others = [asyncio.create_task(answer(party[name], ask(name, num_predict=1))) for name in ("ada", "cyd")]
        while len(text.came) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert sorted(text.came) == ["ada", "bob 0", "cyd"]
        for _ in range(3):
            text.may.release()
        await asyncio.gather(*others)
    for _ in flood:
        text.may.release()
    await asyncio.gather(*flood)


async def test_requests_when_one_member_has_more_than_its_share_then_refused_before_they_are_rendered(
    gated: tuple[StageParty, list[Gated]],
) -> None:
    party, (text,) = gated
    flood = [asyncio.create_task(answer(party["ada"], ask("x"))) for _ in range(MOST_WAITING_OF_ONE + 2)]
    await asyncio.sleep(0)
    refused = await refusal(party["ada"], ask("y"))
    assert isinstance(refused, Exhausted)
    assert "ada" in str(refused)
    assert "y" not in text.came
    for one in flood:
        one.cancel()
    await asyncio.wait(flood)
    text.may.release()
    assert (await answer(party["ada"], ask("z", num_predict=1)))[1].done


async def test_request_when_the_queue_is_full_then_refused_before_it_is_rendered(tiny: Path, tmp_path: Path) -> None:
    texts: list[Gated] = []

    def make(folder: Path) -> Gated:
        texts.append(Gated(folder))
        texts[-1].may = asyncio.Semaphore(99)
        return texts[-1]

    limits = replace(LIMITS, engine=EngineLimits(most_waiting=1))
    async with party(tiny, tmp_path, "ada", limits=limits, text=make) as made:
        await made.serve((0, 6), ("ada",), concurrency=1)
        running = [made["ada"].stage.generate(ask(f"r{n}", num_predict=-1)) for n in range(2)]
        await anext(running[0])
        waiting = asyncio.ensure_future(anext(running[1]))
        async with asyncio.timeout(10):
            while len(texts[0].came) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert isinstance(await refusal(made["ada"], ask("late")), Exhausted)
        assert texts[0].came == ["r0", "r1"]
        waiting.cancel()
        await asyncio.wait([waiting])
        for one in running:
            await one.aclose()


async def test_request_when_too_large_then_refused_where_it_was_typed(
    gated: tuple[StageParty, list[Gated]],
) -> None:
    party, (text,) = gated
    refused = await refusal(party["bob"], ask("x" * MOST_REQUEST_BYTES))
    assert isinstance(refused, InvalidInput)
    assert "shorten it" in str(refused)
    assert text.came == []


async def test_answer_when_the_text_is_in_its_process_then_the_same_as_here(tiny: Path, tmp_path: Path) -> None:
    answers: list[tuple[str, int]] = []
    for make in (TextHere, lambda folder: TextProcess(folder, model="m")):
        async with party(tiny, tmp_path, "ada", "bob", text=make) as made:
            await made.serve((0, 3, 6), ("ada", "bob"))
            text, last = await answer(made["bob"], ask(num_predict=20))
            answers.append((text, last.prompt_tokens))
    assert answers[0] == answers[1]
