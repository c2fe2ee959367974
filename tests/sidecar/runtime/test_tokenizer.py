import json
from pathlib import Path
from typing import Any

import pytest

from kafila_sidecar.errors import InvalidInput, Refused
from kafila_sidecar.runtime.text.options import SamplingOptions, resolve
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.support.tiny import write_tokenizer

pytestmark = pytest.mark.mlx

HELLO = [{"role": "user", "content": "Hello"}]


def folder_with(folder: Path, **extra: Any) -> Path:
    """A byte-level tokenizer's folder, with more keys in tokenizer_config.json."""
    write_tokenizer(folder)
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | extra))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": 2}))
    return folder


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(folder_with(tmp_path_factory.mktemp("tokenizer")))


def text_of(tokenizer: Tokenizer, ids: list[int], *, after_raw_prompt: bool = False) -> list[str]:
    stream = tokenizer.stream(after_raw_prompt=after_raw_prompt)
    return [*(stream.add(token) for token in ids), stream.finish()]


def test_conversation_when_rendered_then_by_the_checkpoints_template(tokenizer: Tokenizer) -> None:
    prompt = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.render(HELLO) == tokenizer.backend.encode(prompt, add_special_tokens=False).ids


def test_text_when_streamed_then_in_whole_characters(tokenizer: Tokenizer) -> None:
    text = "é🐫 <|im_start|>"
    pieces = text_of(tokenizer, tokenizer.encode(text), after_raw_prompt=True)
    assert "".join(pieces) == text
    assert pieces[:6] == ["", "é", "", "", "", "🐫"]


def test_text_when_two_answers_stream_at_once_then_kept_apart(tokenizer: Tokenizer) -> None:
    first, second = tokenizer.stream(), tokenizer.stream()
    pairs = zip(tokenizer.encode("abc"), tokenizer.encode("xyz"), strict=True)
    assert [first.add(a) + second.add(x) for a, x in pairs] == ["ax", "by", "cz"]


def test_text_when_it_ends_within_a_character_then_it_ends_before_it(tokenizer: Tokenizer) -> None:
    assert text_of(tokenizer, tokenizer.encode("aé")[:2]) == ["a", "", ""]


@pytest.mark.parametrize(("raw", "text"), [(True, " Paris"), (False, "Paris")])
def test_leading_space_when_the_prompt_was_raw_then_kept(tokenizer: Tokenizer, raw: bool, text: str) -> None:
    assert "".join(text_of(tokenizer, tokenizer.encode(" Paris"), after_raw_prompt=raw)) == text


def test_eos_when_generation_config_names_several_then_all_of_them(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 5]}))
    assert Tokenizer.load(folder).eos_ids == {0, 2, 5}


def test_fit_when_too_long_then_refused_in_stocks_words_or_cut(tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": f"message {number}"} for number in range(9)]
    with pytest.raises(InvalidInput, match=r"^the input length exceeds the context length$"):
        tokenizer.fit(messages, limit=60, truncate=False)
    assert tokenizer.fit(messages, limit=60) == tokenizer.render(messages[-2:])
    assert len(tokenizer.fit([{"role": "user", "content": "x" * 99}], limit=60)) == 60


def test_template_when_it_raises_then_the_clients_mistake(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    (folder / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InvalidInput, match="roles must alternate"):
        Tokenizer.load(folder).fit(HELLO, limit=60)


def test_template_when_it_reaches_for_python_then_the_sandbox_refuses(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    (folder / "chat_template.jinja").write_text("{{ ''.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(InvalidInput):
        Tokenizer.load(folder).render(HELLO)


def test_conversation_when_there_is_no_template_then_its_text(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    (folder / "chat_template.jinja").unlink()
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.render(HELLO) == tokenizer.encode("Hello")


@pytest.mark.parametrize(
    "extra",
    [
        {"tool_parser_type": "os"},
        {"tool_parser_type": ["os"]},
        {"chat_template_type": "evil"},
        {"model_file": "evil.py"},
    ],
    ids=str,
)
def test_tokenizer_when_it_asks_for_other_code_then_refused(tmp_path: Path, extra: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        Tokenizer.load(folder_with(tmp_path, **extra))


AUTO_MAPS: list[Any] = [{"AutoTokenizer": ["evil.T", None]}, {"AutoTokenizer": [None, "a/b--evil.T"]}, ["evil.T"]]


@pytest.mark.parametrize("auto_map", AUTO_MAPS, ids=str)
@pytest.mark.parametrize("kind", ["LlamaTokenizer", "TikTokenTokenizer", "PreTrainedTokenizerFast", None])
def test_tokenizer_when_its_file_is_there_then_the_same_whatever_code_is_named_beside_it(
    tmp_path: Path, kind: str | None, auto_map: Any
) -> None:
    for name in ("plain", "mapped"):
        (tmp_path / name).mkdir()
    plain = Tokenizer.load(folder_with(tmp_path / "plain", tokenizer_class=kind))
    mapped = Tokenizer.load(folder_with(tmp_path / "mapped", tokenizer_class=kind, auto_map=auto_map))
    assert mapped.render(HELLO) == plain.render(HELLO)
    assert mapped.eos_ids == plain.eos_ids


@pytest.mark.parametrize("auto_map", AUTO_MAPS, ids=str)
@pytest.mark.parametrize("kind", ["TikTokenTokenizer", "AutoModel", "", None, 7, ["LlamaTokenizer"]])
def test_tokenizer_when_it_is_code_alone_then_refused_by_name(tmp_path: Path, kind: Any, auto_map: Any) -> None:
    folder = folder_with(tmp_path, tokenizer_class=kind, auto_map=auto_map)
    (folder / "tokenizer.json").rename(folder / "tiktoken.model")
    with pytest.raises(Refused, match=r"code of its own \(auto_map\).*tokenizer\.json"):
        Tokenizer.load(folder)


def test_tokenizer_when_absent_or_broken_then_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        Tokenizer.load(tmp_path)
    folder = folder_with(tmp_path)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(Refused):
        Tokenizer.load(folder)


ENCODINGS = ["utf-8-sig", "utf-16"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_tokenizer_when_its_files_have_a_byte_order_mark_then_the_same(
    tmp_path: Path, tokenizer: Tokenizer, encoding: str
) -> None:
    folder = folder_with(tmp_path)
    for path in folder.iterdir():
        path.write_bytes(path.read_text(encoding="utf-8").encode(encoding))
    read = Tokenizer.load(folder)
    assert read.render(HELLO) == tokenizer.render(HELLO)
    assert read.eos_ids == tokenizer.eos_ids


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json"])
@pytest.mark.parametrize("content", ['{"a": 1, "a": 2}', "[]", "{", '{"a": "\\ud800"}'])
def test_tokenizer_when_a_file_is_ambiguous_or_broken_then_refused(tmp_path: Path, name: str, content: str) -> None:
    folder = folder_with(tmp_path)
    (folder / name).write_text(content)
    with pytest.raises(Refused, match=name):
        Tokenizer.load(folder)


@pytest.mark.parametrize("inner", [False, True])
def test_prompt_when_a_token_has_no_embedding_then_refused(tmp_path: Path, tokenizer: Tokenizer, inner: bool) -> None:
    (space,) = tokenizer.encode(" ")
    folder, sizes = folder_with(tmp_path), {"vocab_size": space}
    config = {"model_type": "llama", **({"text_config": sizes} if inner else sizes)}
    (folder / "config.json").write_text(json.dumps(config))
    small = Tokenizer.load(folder)
    assert small.encode("ab") == tokenizer.encode("ab")
    with pytest.raises(InvalidInput, match="without the token 'Ġ'"):
        small.encode("a b")
    with pytest.raises(InvalidInput, match="without the token 'Ġ'"):
        small.render([{"role": "user", "content": "a b"}])


def test_ids_when_the_tokenizer_has_gaps_then_known(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    described = json.loads((folder / "tokenizer.json").read_text())
    gap = described["model"]["vocab"].pop("a")
    (folder / "tokenizer.json").write_text(json.dumps(described))
    tokenizer = Tokenizer.load(folder)
    assert (tokenizer.size, tokenizer.gaps) == (259, (gap,))
    assert tokenizer.stream().add(gap) == ""


def test_generation_config_when_it_makes_no_sense_then_said_once_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_with(tmp_path)
    (folder / "generation_config.json").write_text('{"temperature": NaN, "top_k": "many", "top_p": "0.5"}')
    with caplog.at_level("INFO"):
        tokenizer = Tokenizer.load(folder)
    assert "generation_config_passed_over keys=temperature,top_k" in caplog.text
    assert resolve({}, tokenizer.generation_config) == SamplingOptions(top_p=0.5)
