"""Ends are a union: every end that any of a checkpoint's files names."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila_sidecar.runtime.text.ends import end_ids
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.support.checkpoint import write_json
from tests.support.vocabularies import END, START, vocabulary

TOKENS = {"<s>": 1, "</s>": 2, "<|im_end|>": 5, "<|end|>": 6, "7": 9}


def ends(
    *, config: Any = None, generation: Any = None, tokenizer: Any = None, special: dict[str, int] | None = None
) -> Any:
    return end_ids((config or {}, generation or {}), (tokenizer or {}, {}), special or {}, TOKENS.get)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (3, {3}),
        ([3, 4], {3, 4}),
        ("3", {3}),
        (3.0, {3}),
        ("</s>", {2}),
        (["</s>", 4, "5"], {2, 4, 5}),
        ("7", {9}),  # the token of that name
        (None, set()),
        (True, set()),
        (-1, set()),
        (2.5, set()),
        ("nonsense", set()),
        ([[3]], set()),
        ({"content": "</s>"}, {2}),
        ({}, set()),
    ],
    ids=str,
)
@pytest.mark.parametrize("file", ["config", "generation", "inner"])
def test_end_when_named_by_id_in_any_form_then_found(file: str, value: Any, found: set[int]) -> None:
    named = {"eos_token_id": value}
    made = ends(config={"text_config": named}) if file == "inner" else ends(**{file: named})
    assert made == found


@pytest.mark.parametrize(
    ("tokenizer", "found"),
    [
        ({"eos_token": "</s>"}, {2}),
        ({"eos_token": {"content": "</s>", "__type": "AddedToken"}}, {2}),
        ({"eos_token": ["</s>", "<|end|>"]}, {2, 6}),
        ({"eot_token": "<|end|>", "eos_token": None}, {6}),
        ({"eos_token": "<gone>"}, set()),
    ],
    ids=str,
)
def test_end_when_named_by_token_then_found(tokenizer: Any, found: set[int]) -> None:
    assert ends(tokenizer=tokenizer) == found


def test_end_when_a_special_token_always_ends_turns_then_found_beside_the_others() -> None:
    assert ends(config={"eos_token_id": 2}, special={"<|im_end|>": 5, "<|end|>": 6}) == {2, 5}


@settings(deadline=None)
@given(st.lists(st.sampled_from([1, "2", [3, "</s>"], None, "<|im_end|>", {"content": "<s>"}]), min_size=3, max_size=3))
def test_ends_when_files_differ_then_all_of_them(said: list[Any]) -> None:
    config, generation, tokenizer = said
    whole = ends(
        config={"eos_token_id": config}, generation={"eos_token_id": generation}, tokenizer={"eos_token": tokenizer}
    )
    alone = [
        ends(config={"eos_token_id": config}),
        ends(generation={"eos_token_id": generation}),
        ends(tokenizer={"eos_token": tokenizer}),
    ]
    assert whole == frozenset().union(*alone)


def test_ends_when_a_checkpoint_is_loaded_then_of_all_its_files_and_no_others(tmp_path: Path) -> None:
    folder = vocabulary(tmp_path, "byte_level")
    numbers = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    start = next(token["id"] for token in numbers if token["content"] == START)
    write_json(folder / "config.json", {"model_type": "llama", "eos_token_id": [start, 10**6]})
    write_json(folder / "generation_config.json", {"eos_token_id": "7"})
    write_json(folder / "special_tokens_map.json", {"eos_token": {"content": "<s>", "lstrip": False}})
    tokenizer = Tokenizer.load(folder)
    named = {tokenizer.backend.token_to_id(token) for token in ("</s>", "<s>", "7", END)}
    assert tokenizer.eos_ids == named | {start}
