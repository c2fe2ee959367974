"""One reader for the small files: what it reads whatever the encoding, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila_sidecar import small_files
from kafila_sidecar.errors import NotFound, Refused
from kafila_sidecar.small_files import parse_json, read_json, read_text, small_files_of

ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-32"]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('aü日🐫"\\\x00\u2028', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abé", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(deadline=None)
@given(content=st.dictionaries(st.text("abü", max_size=3), values, max_size=4), escaped=st.booleans())
def test_json_when_in_any_encoding_then_read(
    tmp_path_factory: pytest.TempPathFactory, encoding: str, content: dict[str, Any], escaped: bool
) -> None:
    path = tmp_path_factory.mktemp("json") / "config.json"
    path.write_bytes(json.dumps(content, ensure_ascii=escaped).encode(encoding))
    assert read_json("a/model", path) == content


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_text_when_in_any_encoding_then_read_without_its_mark(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "chat_template.jinja"
    path.write_bytes("{{ 'ü🐫' }}".encode(encoding))
    assert read_text("a/model", path) == "{{ 'ü🐫' }}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "'a' twice"),
        ('{"x": {"a": 1, "a": null}}', "'a' twice"),
        ('{"a": NaN, "a": NaN}', "'a' twice"),
        ("[1]", "no JSON object"),
        ("null", "no JSON object"),
        ("", "no JSON object"),
        ("{", "no JSON object"),
        ('{"a": 1} x', "no JSON object"),
        ('{"a": ' + "9" * 5000 + "}", "no JSON object"),
        ('{"a": ' * 100_000, "no JSON object"),
        ('{"a": ' * 80 + "1" + "}" * 80, "nested more than 64 deep"),
        ('{"a": "\\ud83d"}', "half a character"),
        ('{"\\udc2b": 1}', "half a character"),
    ],
    ids=lambda text: str(text)[:30],
)
def test_json_when_readers_would_differ_or_fail_then_refused(text: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason) as refusal:
        parse_json("a/model", "config.json", text)
    assert "a/model has a config.json" in str(refusal.value)
    assert len(str(refusal.value)) < 300


def test_json_when_a_key_comes_twice_with_one_value_then_read() -> None:
    assert parse_json("m", "f", '{"a": [1], "a": [1], "n": Infinity, "c": "\\ud83d\\udc2b"}') == {
        "a": [1],
        "n": float("inf"),
        "c": "🐫",
    }


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: None, NotFound),
        (lambda path: path.write_bytes(b"\xff{}"), Refused),
        (lambda path: path.write_bytes(b"\xff\xfe{"), Refused),
        (lambda path: path.write_bytes(b"{" + b" " * 100 + b"}"), Refused),
        (lambda path: path.mkdir(), Refused),
    ],
    ids=["absent", "no text", "half a unit", "large", "a folder"],
)
def test_file_when_it_cant_be_read_then_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], error: type[Exception]
) -> None:
    monkeypatch.setattr(small_files, "MOST_SMALL_BYTES", 64)
    make(tmp_path / "config.json")
    with pytest.raises(error, match=r"config\.json"):
        read_json("a/model", tmp_path / "config.json")


def test_small_files_when_listed_then_no_code_and_no_strange_places() -> None:
    wanted = ["additional_chat_templates/tool_use.jinja", "config.json", "tokenizer.json"]
    others = [
        "model.py",
        "additional_chat_templates/../x.jinja",
        "additional_chat_templates/a/b.jinja",
        "x/config.json",
    ]
    assert sorted(small_files_of([*others, *wanted])) == wanted
    many = [f"additional_chat_templates/{number}.jinja" for number in range(99)]
    assert len(small_files_of(many)) == small_files.MOST_TEMPLATES
