"""Prompts, and what comes with them, are bounded before anything is built of them."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models
from tokenizers import Tokenizer as Backend

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import Exhausted, InvalidInput, Refused
from kafila_sidecar.net.errors import BadFrame, PeerReset
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.runtime.text.conversation import TOO_LONG, Message, fit_messages, fit_tokens, newest
from kafila_sidecar.runtime.text.decoding import Decoding
from kafila_sidecar.runtime.text.loading import TokenizerFiles, load_files
from kafila_sidecar.runtime.text.templates import find_templates
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from kafila_sidecar.runtime.text.vocabulary import Vocabulary
from kafila_sidecar.serving import remote
from kafila_sidecar.serving.intake.intake import Intake
from kafila_sidecar.serving.intake.limits import MOST_REQUEST_BYTES, refuse_unsupported
from kafila_sidecar.serving.intake.shares import (
    MOST_BYTES,
    MOST_BYTES_OF_ONE,
    MOST_WAITING_OF_ONE,
    SMALL_BYTES,
    HeadShares,
)
from tests.sidecar.serving.rings import settle
from tests.sidecar.serving.streams import StreamWire
from tests.support.vocabularies import vocabulary

LIMIT = 40


class Counting:
    """A tokenizer that counts the characters that it was given."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.characters = 0
        self.calls = 0

    def encode(self, text: str, **options: Any) -> Any:
        self.calls += 1
        self.characters += len(text)
        return self._backend.encode(text, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


KINDS = ["byte_level", "ignoring_merges", "byte_fallback", "metaspace_unigram", "smollm2"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TokenizerFiles]:
    return {kind: load_files("m", vocabulary(tmp_path_factory.mktemp(kind), kind)) for kind in KINDS}


def counted(files: TokenizerFiles, template: str) -> tuple[Tokenizer, Counting]:
    backend = Counting(files.backend)
    made = Tokenizer(replace(files, backend=cast(Backend, backend)), {"default": template})
    backend.characters = backend.calls = 0
    return made, backend


CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def user(*contents: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content} for content in contents]


def test_prompt_when_it_cant_fit_then_refused_in_stocks_words_before_it_is_encoded(
    folders: dict[str, TokenizerFiles],
) -> None:
    for files in folders.values():
        tokenizer, backend = counted(files, CHATML)
        for messages in (user("x" * 10_000_000), user(*["x"] * 200_000)):
            with pytest.raises(InvalidInput, match=f"^{TOO_LONG}$"):
                tokenizer.fit(messages, limit=LIMIT, truncate=False)
        with pytest.raises(InvalidInput, match=f"^{TOO_LONG}$"):
            tokenizer.fit_text("x" * 10_000_000, limit=LIMIT, truncate=False)
        assert backend.calls == 0


def test_prompt_when_it_is_cut_then_only_what_can_fit_is_encoded(folders: dict[str, TokenizerFiles]) -> None:
    for files in folders.values():
        tokenizer, backend = counted(files, CHATML)
        conversations = (user("the quick brown fox " * 500_000), user(*["hello "] * 200_000), user("x", "y" * 10**7))
        for messages in conversations:
            assert 0 < len(tokenizer.fit(messages, limit=LIMIT)) <= LIMIT
        assert len(tokenizer.fit_text("the quick brown fox " * 500_000, limit=LIMIT)) == LIMIT
        assert backend.characters < 200_000


WORDS = st.sampled_from(["the quick ", "brown", "日本語", "  ", "\n\n", "🐫", "é", "a b", "<|im_start|>", "xyz" * 30])
TEXTS = st.lists(WORDS, max_size=300).map("".join)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=6), limit=st.integers(8, 120), keep=st.integers(-1, 20))
def test_fit_when_bounded_then_what_the_whole_conversation_comes_to(
    folders: dict[str, TokenizerFiles], texts: list[str], limit: int, keep: int
) -> None:
    messages = user(*texts)
    for files in folders.values():
        tokenizer, _ = counted(files, CHATML)

        def whole(part: Sequence[Message], tokenizer: Tokenizer = tokenizer) -> list[int]:
            return tokenizer.render(part)

        expected = fit_tokens(fit_messages(messages, whole, limit), limit=limit, keep=keep)
        assert tokenizer.fit(messages, limit=limit, keep=keep) == expected
        text = "".join(texts)
        raw = fit_tokens(tokenizer.encode(text), limit=limit, keep=keep)
        assert tokenizer.fit_text(text, limit=limit, keep=keep) == raw


def test_newest_when_many_then_as_few_go_as_must_and_the_systems_and_the_last_stay() -> None:
    system = [{"role": "system", "content": "s" * 9}]
    assert newest(system + user("aaa", "bb", "c"), characters=12, most=9) == system + user("bb", "c")
    assert newest(system + user("aaa", "bb", "c"), characters=99, most=2) == system + user("c")
    assert newest(user("a", "b" * 99), characters=3, most=9) == user("b" * 99)
    assert newest([], characters=3, most=9) == []


HOSTILE_DECODERS = {
    "grows": decoders.Sequence([decoders.Replace("a", "a" * 10), decoders.Replace("a", "a" * 10)]),
    "writes long texts": decoders.Replace("a", "b" * 1_000_000),
    "has steps without end": decoders.Sequence([decoders.Replace("a", "b")] * 10_000),
    "replaces nothing": decoders.Replace("", "b"),
    "looks back for ever": decoders.Replace(Regex("(a|a)*$"), "b"),
}


@pytest.mark.parametrize("decoder", HOSTILE_DECODERS.values(), ids=HOSTILE_DECODERS)
def test_decoder_when_a_token_would_cost_without_end_then_refused(decoder: Any) -> None:
    backend = Backend(models.WordLevel({"a": 0}, unk_token="a"))
    backend.decoder = decoder
    with pytest.raises(Refused, match="decoder"):
        Decoding.of(backend)


@pytest.mark.parametrize("token", [{"x" * 5000: 7}, {"x": 3_000_000_000}], ids=["long", "of a high id"])
def test_tokenizer_when_a_token_is_out_of_all_proportion_then_refused_before_anything_is_made_of_it(
    tmp_path: Path, token: dict[str, int]
) -> None:
    vocabulary(tmp_path, "byte_level")
    described = json.loads((tmp_path / "tokenizer.json").read_text())
    described["model"]["vocab"] |= token
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    with pytest.raises(Refused, match="choose another model"):
        Tokenizer(load_files("m", tmp_path), find_templates("m", tmp_path))


# ---- What comes with a prompt


class Untouched:
    """A text that nobody may ask."""

    async def vocabulary(self) -> Vocabulary:
        raise AssertionError

    async def ids(self, prompt: str, **fit: Any) -> Sequence[int]:
        raise AssertionError("it was rendered")

    async def calls(self, text: str, *, reader: str, prompt: str) -> Sequence[dict[str, Any]]:
        raise AssertionError("it was answered")

    def kill(self) -> None: ...
    async def close(self) -> None: ...


LARGE = MOST_REQUEST_BYTES + 1
OVERDONE = {
    "a prompt": pb.GenerateRequest(prompt="x" * LARGE),
    "stop strings": pb.GenerateRequest(prompt="x", options=pb.Options(stop=[f"stop {n}" for n in range(200_000)])),
    "long stop strings": pb.GenerateRequest(prompt="x", options=pb.Options(stop=["x" * 100_000])),
    "a schema": pb.GenerateRequest(prompt="x", format='{"a":' * 100_000),
    "a name": pb.GenerateRequest(prompt="x", session="s" * LARGE),
}


@pytest.mark.parametrize("request_", OVERDONE.values(), ids=OVERDONE)
async def test_request_when_anything_of_it_is_overdone_then_refused_before_its_prompt_is_rendered(
    request_: pb.GenerateRequest,
) -> None:
    vocabulary = Vocabulary(4, (), frozenset(), {}, Decoding.read(None, lambda _: ""))
    intake = Intake(text=Untouched(), vocabulary=vocabulary, context_tokens=100)
    with pytest.raises(InvalidInput) as refused:
        await intake.prepare(request_, ring_pb2.Replay())
    assert len(str(refused.value)) < 200


def test_request_when_as_large_as_may_be_then_not_refused_for_that() -> None:
    refuse_unsupported(pb.GenerateRequest(prompt="x" * (MOST_REQUEST_BYTES - 100)))


# ---- Other members


async def test_request_of_a_member_when_it_is_too_large_then_none_of_it_is_kept() -> None:
    errors: list[BaseException] = []

    async def serve(stream: Stream) -> None:
        try:
            await remote.read_request(stream)
        except BadFrame as error:
            errors.append(error)
            raise

    wire = StreamWire("mallory", "head", serve)
    stream = await wire.open()
    sending = asyncio.create_task(stream.send(bytes(40 << 20)))
    with pytest.raises(PeerReset):
        await stream.receive(5)
    await asyncio.wait([sending])
    assert "over the limit" in str(errors[0])
    await settle()
    await wire.end()


def test_share_when_one_member_asks_without_end_then_others_still_can() -> None:
    shares, held = HeadShares(), []
    for _ in range(MOST_WAITING_OF_ONE + 2):
        held.append(shares.held("mallory", 10, concurrency=2))
        held[-1].__enter__()
    with pytest.raises(Exhausted, match="mallory"), shares.held("mallory", 10, concurrency=2):
        raise AssertionError
    with shares.held("ada", 10, concurrency=2):
        pass
    held.pop().__exit__(None, None, None)
    with shares.held("mallory", 10, concurrency=2):
        pass


def test_share_when_members_bring_large_prompts_then_bounded_for_each_and_in_all_and_small_ones_go_in() -> None:
    shares, held = HeadShares(), []
    for number in range(MOST_BYTES // MOST_BYTES_OF_ONE):
        held.append(shares.held(f"m{number}", MOST_BYTES_OF_ONE, concurrency=1))
        held[-1].__enter__()
    with pytest.raises(Exhausted, match="m0"), shares.held("m0", 1, concurrency=1):
        raise AssertionError
    with pytest.raises(Exhausted, match="MB wait"), shares.held("ada", SMALL_BYTES + 1, concurrency=1):
        raise AssertionError
    with shares.held("ada", SMALL_BYTES, concurrency=1):
        pass


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, MOST_REQUEST_BYTES)), max_size=40))
def test_share_when_all_is_given_back_then_nothing_stands_here(asked: list[tuple[str, int]]) -> None:
    shares, held = HeadShares(), []
    for member, size_bytes in asked:
        one = shares.held(member, size_bytes, concurrency=1)
        try:
            one.__enter__()
        except Exhausted:
            continue
        held.append(one)
    for one in held:
        one.__exit__(None, None, None)
    for member in "abc":
        with shares.held(member, MOST_BYTES_OF_ONE, concurrency=1):
            pass
