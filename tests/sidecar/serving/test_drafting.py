"""A draft model on the head: it follows each request's text, and what it guesses changes no answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafila_sidecar.errors import Refused, Unavailable
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.text.vocabulary import Vocabulary
from kafila_sidecar.serving.drafting.drafts import SOON_TOKENS, DraftHere, LoadDraft, RunningDraft
from kafila_sidecar.serving.drafting.fetched import fetched
from kafila_sidecar.serving.drafting.model import DraftModel
from kafila_sidecar.serving.drafting.pairing import check_pair
from kafila_sidecar.serving.holding import LoadShard
from kafila_sidecar.serving.standstill import ModelThread
from kafila_sidecar.weights.checkpoint import Checkpoint, open_checkpoint
from kafila_sidecar.weights.providers.hub import Hub
from tests.sidecar.serving.stages import NAMES, StageParty, answer, ask, party

pytestmark = pytest.mark.mlx

PROMPT = [(7 * i) % 250 + 3 for i in range(40)]
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"repeat_penalty": 1.5},
    "seed": {"temperature": 1.0, "seed": 5, "repeat_penalty": 1.2, "top_k": 20},
}


@pytest.fixture
def draft(tiny: Path) -> DraftModel:
    from tests.exact.shards import load_shard

    return DraftModel(load_shard(tiny, 0, 6, True), 259)


def continued(tiny: Path, text: list[int], count: int) -> list[int]:
    """What the model says alone."""
    from tests.exact.shards import Whole

    return [token for token, _ in Whole(tiny).greedy(text, count, 512)]


def test_draft_when_asked_then_it_says_what_it_would_say_alone_whatever_became_of_what_it_said_before(
    draft: DraftModel, tiny: Path
) -> None:
    told = continued(tiny, PROMPT, 6)
    assert draft.guess(1, PROMPT, 6) == told
    assert draft.guess(1, [*PROMPT, *told], 2) == continued(tiny, [*PROMPT, *told], 2)  # all were right
    other = [*PROMPT, *told[:2], 9]
    assert draft.guess(1, other, 3) == continued(tiny, other, 3)  # the third one was wrong
    assert draft.guess(1, other, 1) == continued(tiny, other, 1)  # asked again
    assert draft.guess(2, [5, 6], 2) == continued(tiny, [5, 6], 2)
    assert draft.guess(2, [8, 6, 7], 2) == continued(tiny, [8, 6, 7], 2)  # another text altogether
    for request in (1, 2):
        draft.forget(request)
    assert draft._shard.active == 0
    draft.close()


def test_draft_when_it_has_read_a_text_in_parts_then_it_lacks_the_rest(draft: DraftModel, tiny: Path) -> None:
    assert draft.lacks(1, PROMPT) == 39
    draft.read(1, PROMPT[:30])
    assert draft.lacks(1, PROMPT) == 9
    assert draft.guess(1, PROMPT, 2) == continued(tiny, PROMPT, 2)
    assert draft.lacks(1, PROMPT) == 0
    draft.close()


def test_draft_when_its_caches_cant_forget_then_it_is_refused(windowed: Path) -> None:
    from tests.exact.shards import load_shard

    with pytest.raises(Refused, match="forget"):
        DraftModel(load_shard(windowed, 0, 6, True), None)


def here(folder: Path, data: Path, *, ids: int = 259) -> Callable[[MlxThread], DraftHere]:
    """Drafts that come from this folder; `ids`: of the model for which they guess."""

    async def opened() -> Checkpoint:
        return await open_checkpoint(str(folder), hub=Hub(endpoint="http://127.0.0.1:9"), cache=data)

    return lambda mlx: DraftHere(mlx, fetched=lambda: fetched(opened, model={"vocab_size": ids}))


@asynccontextmanager
async def drafted(model: Path, data: Path, drafts: Callable[[MlxThread], DraftHere]) -> AsyncIterator[StageParty]:
    async with party(model, data, *NAMES[:3], drafts=drafts) as made:
        await made.serve((0, 2, 4, 6), NAMES[:3])
        yield made


class CostlessDraft(DraftHere):
    """Whose guesses are taken for free, so that they are made whatever else this machine does."""

    def __init__(self, mlx: MlxThread, draft: DraftHere) -> None:
        super().__init__(mlx, fetched=draft._fetched)

    def begin(self, mlx: ModelThread) -> RunningDraft:
        class Costless(RunningDraft):
            token_s = None

        super().begin(mlx)
        return Costless(mlx, lambda: self._model)


def noted(made: list[DraftHere], model: Path, data: Path) -> Callable[[MlxThread], DraftHere]:
    """As `here`, and each one is told."""

    def make(mlx: MlxThread) -> DraftHere:
        made.append(here(model, data)(mlx))
        return made[-1]

    return make


@pytest.mark.parametrize("kind", ["greedy", pytest.param("seed", marks=pytest.mark.long)])
async def test_answer_when_a_draft_model_guesses_then_it_is_the_one_without(
    tiny: Path, tmp_path: Path, kind: str
) -> None:
    """The draft is the model itself, so that greedy guesses are right."""
    made: list[DraftHere] = []
    async with drafted(tiny, tmp_path, noted(made, tiny, tmp_path)) as three:
        await made[0].arrived()
        plain, last = await answer(three["ada"], ask(num_predict=50, guesses=0, **KINDS[kind]))
        text, last_too = await answer(three["ada"], ask(num_predict=50, **KINDS[kind]))
        assert (text, last_too.output_tokens) == (plain, last.output_tokens)
        await three.until_free(10)
        trace = three["ada"].traces[-1]
        assert trace["guesses_drafted"] > 0
        assert trace["guesses_right"] > 0 or kind == "seed"
        both = await asyncio.gather(*(answer(three["bob"], ask(num_predict=30, **KINDS[kind])) for _ in range(2)))
        assert all(plain.startswith(one) for one, _ in both)
        await three.until_free(10)


async def test_draft_when_another_member_becomes_the_head_then_that_one_brings_its_own_and_answers_go_on(
    tiny: Path, tmp_path: Path
) -> None:
    made: list[DraftHere] = []
    async with drafted(tiny, tmp_path, noted(made, tiny, tmp_path)) as three:
        await made[0].arrived()
        plain, _ = await answer(three["ada"], ask(num_predict=20, guesses=0, **KINDS["greedy"]))
        await three.stop()
        await three.serve((0, 3, 6), ("bob", "cyd"))
        assert (await answer(three["bob"], ask(num_predict=20, **KINDS["greedy"])))[0] == plain
        await made[1].arrived()
        assert (await answer(three["bob"], ask(num_predict=20, **KINDS["greedy"])))[0] == plain
        assert [one._model is not None for one in made] == [False, True, False]


class LoadedDraft:
    """Knows only whether it is in memory."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("has_come", [True, False])
@pytest.mark.parametrize("turns", range(5))
async def test_draft_when_freeing_it_is_cancelled_wherever_it_waits_then_the_next_time_frees_it(
    turns: int, has_come: bool
) -> None:
    mlx, model = MlxThread(), LoadedDraft()

    @asynccontextmanager
    async def bring() -> AsyncIterator[LoadDraft]:
        yield lambda: cast(DraftModel, model)

    drafts = DraftHere(mlx, fetched=bring)
    drafts.begin(mlx)
    await drafts.arrived() if has_come else await asyncio.sleep(0)
    freeing = asyncio.create_task(drafts.free())
    for _ in range(turns):
        await asyncio.sleep(0)
    freeing.cancel()
    await asyncio.gather(freeing, return_exceptions=True)
    await drafts.free()
    await mlx.run(lambda: None)
    assert drafts._model is None
    assert model.closed == 1 or not has_come
    drafts.begin(mlx)
    await drafts.arrived()
    assert drafts._model is cast(DraftModel, model)
    mlx.close()


async def test_draft_when_it_cant_be_had_then_answers_go_on_without(
    tiny: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def never() -> AsyncIterator[LoadDraft]:
        raise Unavailable("the model host doesn't answer")
        yield cast(LoadDraft, None)

    bring = cast(Callable[[], AbstractAsyncContextManager[LoadDraft]], never)
    async with drafted(tiny, tmp_path, lambda mlx: DraftHere(mlx, fetched=bring)) as three:
        _, last = await answer(three["ada"], ask(num_predict=20, **KINDS["greedy"]))
    assert last.output_tokens == 20
    assert "no_draft_model" in caplog.text


@pytest.mark.long
async def test_draft_when_a_prompt_is_long_then_it_reads_it_beside_the_answer(tiny: Path, tmp_path: Path) -> None:
    made: list[DraftHere] = []
    prompt = "a long story " * 8
    assert len(prompt) > SOON_TOKENS
    async with drafted(tiny, tmp_path, noted(made, tiny, tmp_path)) as three:
        await made[0].arrived()
        plain, _ = await answer(three["ada"], ask(prompt, num_predict=40, guesses=0, **KINDS["greedy"]))
        assert (await answer(three["ada"], ask(prompt, num_predict=40, **KINDS["greedy"])))[0] == plain
        await three.until_free(10)


def words(*texts: str, eos: int = 0, controls: frozenset[int] = frozenset()) -> Vocabulary:
    decoding: Any = SimpleNamespace(bytes_of=lambda number: texts[number].encode())
    return Vocabulary(
        size=len(texts), gaps=(), eos_ids=frozenset({eos}), generation_config={}, decoding=decoding, controls=controls
    )


@pytest.mark.parametrize(
    ("draft", "told"),
    [
        pytest.param(words("a", "b"), "3 tokens, the other 2", id="another-size"),
        pytest.param(words("a", "x", "c"), "token 1 is 'b' in one and 'x' in the other", id="another-word"),
        pytest.param(words("a", "b", "c", controls=frozenset({2})), "token 2 is text for one", id="another-sign"),
        pytest.param(words("a", "b", "c", eos=1), "end with different tokens", id="another-end"),
    ],
)
def test_pair_when_the_models_mean_different_things_by_an_id_then_it_is_refused_in_words(
    draft: Vocabulary, told: str
) -> None:
    check_pair(words("a", "b", "c"), words("a", "b", "c"), named="big", draft_named="small")
    with pytest.raises(Refused, match=told):
        check_pair(words("a", "b", "c"), draft, named="big", draft_named="small")


class StepsStaySingle(Shard):
    """A stage whose steps of several tokens are not exact, so that guesses run ahead."""

    def learn_steps(self, before: Shard | None = None) -> None: ...


@pytest.mark.long
@pytest.mark.parametrize("load_shard", [Shard.load, StepsStaySingle.load], ids=["together", "ahead"])
async def test_answer_when_a_cut_down_smollm2_guesses_for_the_whole_one_then_it_is_the_one_without(
    tmp_path: Path, load_shard: LoadShard
) -> None:
    from tests.support.smollm2 import cut_down, smollm2_folder

    folder = smollm2_folder()
    made: list[DraftHere] = []

    def drafts(mlx: MlxThread) -> DraftHere:
        made.append(CostlessDraft(mlx, here(cut_down(folder, 20), tmp_path, ids=49152)(mlx)))
        return made[-1]

    names = (*NAMES, "eve")
    async with party(folder, tmp_path, *names, drafts=drafts, load_shard=load_shard) as three:
        await three.serve((0, 2, 9, 16, 23, 30), names)  # so that each stage idles for more than half of a circuit
        await made[0].arrived()
        for given in ({}, {"temperature": 0.8, "seed": 3, "top_k": 40}):
            asked = ask("Once upon a time a lighthouse keeper", num_predict=40, guesses=0, **given)
            plain, _ = await answer(three["ada"], asked)
            asked.options.ClearField("guesses")
            assert (await answer(three["ada"], asked))[0] == plain
            await three.until_free(10)
            assert three["ada"].traces[-1]["circuits"] > 0
            assert three["ada"].traces[-1]["guesses_drafted"] > 0
