"""Answers held to a schema: what may come next, when they are whole, and which schemas are refused."""

import asyncio
import json
import random
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.answer.pieces import Standing
from kafila_sidecar.runtime.constraint.constraint import Constraint
from kafila_sidecar.runtime.constraint.constraints import Constraints
from kafila_sidecar.runtime.constraint.grammar import MOST_SCHEMA_BYTES
from kafila_sidecar.runtime.constraint.held import HeldAnswer
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from kafila_sidecar.runtime.text.vocabulary import Vocabulary, from_json, to_json
from tests.support.vocabularies import vocabulary

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "likes": {"type": "array", "items": {"enum": ["tea", "日本", "a b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
KINDS = ("byte_level", "ignoring_merges", "byte_fallback", "keeping_spaces", "sentencepiece_bpe")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Vocabulary]:
    below = tmp_path_factory.mktemp("constraint")
    return {kind: read(vocabulary(below / kind, kind)) for kind in (*KINDS, "smollm2")}


def read(folder: Path) -> Vocabulary:
    return from_json(to_json(Tokenizer.load(folder)))


def made(words: Vocabulary, schema: Any, **how: Any) -> Constraint:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return asyncio.run(Constraints(words).make(text, **how))


def ids_in(bits: bytes, size: int) -> list[int]:
    return [number for number in range(size) if bits[number // 8] >> number % 8 & 1]


def drawn(words: Vocabulary, held: Constraint, seed: int, most: int = 400) -> bytes:
    """An answer of tokens at random among those that are allowed, as far as the end."""
    draw, said = random.Random(seed), b""
    for _ in range(most):
        allowed = ids_in(held.allowed(), words.size)
        assert allowed
        token = draw.choice(allowed)
        if token in words.eos_ids:
            return said
        said += words.bytes_of(token)
        held.take(token)
        if held.is_over:
            return said
    raise AssertionError("it never ended")


@pytest.mark.parametrize("kind", KINDS)
def test_answer_when_any_allowed_tokens_are_picked_then_it_fits_the_schema_and_ends_at_its_brace(
    known: dict[str, Vocabulary], kind: str
) -> None:
    for seed in range(8):
        said = drawn(known[kind], made(known[kind], PERSON), seed).decode()
        answer = json.loads(said)
        assert set(answer) == {"name", "age", "likes"}
        assert 0 <= answer["age"] <= 150
        assert len(answer["name"]) <= 20
        assert set(answer["likes"]) <= {"tea", "日本", "a b"}
        assert said.endswith("}")


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_tokens_when_joined_then_they_are_what_was_encoded(known: dict[str, Vocabulary], kind: str) -> None:
    said = b'{"a b": ["x\xc3\xa9", 12]}'
    held, words = made(known[kind], {"type": "object"}), known[kind]
    at = 0
    while at < len(said):
        fitting = [n for n in ids_in(held.allowed(), words.size) if (b := words.bytes_of(n)) and said.startswith(b, at)]
        token = max(fitting, key=lambda number: len(words.bytes_of(number)))
        held.take(token)
        at += len(words.bytes_of(token))
    assert held.is_over


def test_answer_when_it_is_made_again_from_its_ids_then_the_same_is_allowed(known: dict[str, Vocabulary]) -> None:
    words = known["byte_level"]
    first, taken = made(words, PERSON), list[int]()
    draw = random.Random(3)
    while not first.is_over:
        again = made(words, PERSON)
        for token in taken:
            again.take(token)
        assert again.allowed() == first.allowed()
        taken.append(draw.choice(ids_in(first.allowed(), words.size)))
        first.take(taken[-1])


def test_token_when_it_is_not_allowed_then_refused(known: dict[str, Vocabulary]) -> None:
    words = known["byte_level"]
    held = made(words, PERSON)
    wrong = next(n for n in range(words.size) if n not in set(ids_in(held.allowed(), words.size)))
    with pytest.raises(InvalidInput, match="format"):
        held.take(wrong)


def test_mask_when_a_vocabulary_has_49_thousand_tokens_then_it_takes_less_than_a_tenth_of_a_millisecond(
    known: dict[str, Vocabulary],
) -> None:
    """The median, which a busy machine does not move: the real one is some 3 µs."""
    words = known["smollm2"]
    assert words.size > 49_000
    by_text = {words.bytes_of(number): number for number in range(words.size)}
    said, at = json.dumps({"name": "Ada Lovelace", "age": 36, "bio": "she wrote the first program " * 8}).encode(), 0
    held, took = made(words, {"type": "object"}), list[float]()
    while at < len(said):
        token = next(by_text[said[at:end]] for end in range(len(said), at, -1) if said[at:end] in by_text)
        began = time.perf_counter()
        held.allowed()
        took.append(time.perf_counter() - began)
        held.take(token)
        at += len(words.bytes_of(token))
    assert median(took) < 100e-6


NO_SCHEMA = {
    "not json": '{"type":',
    "a list": "[1]",
    "a word": '"yaml"',
    "too large": json.dumps({"enum": ["x" * MOST_SCHEMA_BYTES]}),
    "nested without end": '{"items":' * 5000 + "{}" + "}" * 5000,
    "refers to itself": {"$ref": "#"},
    "refers in a circle": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "refers elsewhere": {"$ref": "http://example.org/schema"},
    "contradicts itself": {"type": "string", "enum": [1]},
    "no type": {"type": "banana"},
    "a pattern that is none": {"type": "string", "pattern": "(["},
    "many ways at once": {
        "allOf": [
            {"oneOf": [{"type": "object", "properties": {f"p{i}_{j}": {"type": "integer"}}} for j in range(2)]}
            for i in range(14)
        ]
    },
    "expressions within expressions": {
        "allOf": [{"type": "string", "pattern": f"^.{{{i * 7}}}(ab|c.*d)*"} for i in range(60)]
    },
}


@pytest.mark.parametrize("schema", NO_SCHEMA.values(), ids=NO_SCHEMA.keys())
def test_schema_when_bad_or_hostile_then_refused_in_words(known: dict[str, Vocabulary], schema: Any) -> None:
    with pytest.raises(InvalidInput, match="format") as error:
        made(known["byte_level"], schema)
    assert len(str(error.value)) < 500
    assert "\n" not in str(error.value)


def test_keyword_when_it_can_not_be_held_to_then_passed_over_unless_strict(known: dict[str, Vocabulary]) -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    assert made(known["byte_level"], schema).allowed()
    with pytest.raises(InvalidInput, match="uniqueItems"):
        made(known["byte_level"], schema, strict=True)


@pytest.fixture(scope="module")
def byte_tokens(known: dict[str, Vocabulary]) -> tuple[Constraints, dict[int, int]]:
    """Makes constraints of one vocabulary; and its token for each byte."""
    words = known["byte_level"]
    single = {
        words.bytes_of(number): number for number in reversed(range(words.size)) if len(words.bytes_of(number)) == 1
    }
    return Constraints(words), {byte: single[bytes([byte])] for byte in range(0x20, 0x7F)} | {10: single[b"\n"]}


TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="#"), max_size=8
)  # whose token is one of the ends there
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(value=st.dictionaries(TEXTS, VALUES, max_size=4), indent=st.sampled_from([None, 2]))
def test_json_when_any_object_is_said_then_it_is_allowed(
    byte_tokens: tuple[Constraints, dict[int, int]], value: Any, indent: int | None
) -> None:
    constraints, tokens = byte_tokens
    constraint = asyncio.run(constraints.make("json"))
    for byte in json.dumps(value, indent=indent).encode():
        constraint.take(tokens[byte])
    assert constraint.is_over


async def test_held_answer_when_thoughts_and_calls_come_before_then_the_format_is_for_content_alone(
    known: dict[str, Vocabulary],
) -> None:
    words = known["byte_level"]
    constraint = await Constraints(words).make("json", after_thought=True)
    thought, call, end = 7, 9, min(words.eos_ids)
    held = HeldAnswer(constraint, opens=thought, calls=call, ends=words.eos_ids)
    before = ids_in(await held.allowed(Standing.BEFORE) or b"", words.size)
    assert {thought, call} <= set(before)
    assert end not in before
    held.take(thought, Standing.BEFORE)
    assert await held.allowed(Standing.FREE) is None
    for token in (1, 2, 3):
        held.take(token, Standing.FREE)
    held.take(call, Standing.BEFORE)
    assert end in ids_in(await held.allowed(Standing.BEFORE) or b"", words.size)
    content = ids_in(await held.allowed(Standing.CONTENT) or b"", words.size)
    assert set(content).isdisjoint({thought, call, end})
    assert any(words.bytes_of(number) == b"{" for number in content)
