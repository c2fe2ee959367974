"""Chat templates: found wherever repositories keep them, tried, and rendered as transformers does."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from kafila_sidecar.errors import InvalidInput, Refused
from kafila_sidecar.runtime.text.provenance import OwnText, joined, own
from kafila_sidecar.runtime.text.template import ChatTemplate
from kafila_sidecar.runtime.text.templates import find_templates
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.support.checkpoint import write_json
from tests.support.vocabularies import vocabulary

HELLO = [{"role": "user", "content": "Hello"}]
PLAIN = "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
TOOLED = PLAIN + "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


def folder_without_template(folder: Path) -> Path:
    vocabulary(folder, "byte_level")
    (folder / "chat_template.jinja").unlink()
    return folder


def put(folder: Path, files: Mapping[str, Any]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if path.suffix == ".json":
            old = json.loads(path.read_text()) if path.is_file() else {}
            write_json(path, old | content)
        else:
            path.write_text(content)
    return folder


PLACES: dict[str, Mapping[str, Any]] = {
    "a file": {"chat_template.jinja": PLAIN},
    "tokenizer_config": {"tokenizer_config.json": {"chat_template": PLAIN}},
    "a named list": {
        "tokenizer_config.json": {
            "chat_template": [{"name": "rag", "template": "x"}, {"name": "default", "template": PLAIN}]
        }
    },
    "named by keys": {"tokenizer_config.json": {"chat_template": {"default": PLAIN, "tool_use": TOOLED}}},
    "the only one has another name": {"tokenizer_config.json": {"chat_template": [{"name": "x", "template": PLAIN}]}},
    "a file of JSON": {"chat_template.json": {"chat_template": PLAIN}},
    "a processor's": {"processor_config.json": {"chat_template": PLAIN}},
    "a preprocessor's": {"preprocessor_config.json": {"chat_template": PLAIN}},
    "the file counts": {"chat_template.jinja": PLAIN, "tokenizer_config.json": {"chat_template": "old"}},
    "the tokenizer's counts": {
        "tokenizer_config.json": {"chat_template": PLAIN},
        "chat_template.json": {"chat_template": "x"},
    },
    "files with names": {"chat_template.jinja": PLAIN, "additional_chat_templates/tool_use.jinja": TOOLED},
    "the only file has a name": {"additional_chat_templates/default.jinja": PLAIN},
}


@pytest.mark.parametrize("files", PLACES.values(), ids=list(PLACES))
def test_template_when_in_any_place_then_found(tmp_path: Path, files: Mapping[str, Any]) -> None:
    tokenizer = Tokenizer.load(put(folder_without_template(tmp_path), files))
    tokenizer.check()
    start = tokenizer.backend.token_to_id("<|im_start|>")
    assert tokenizer.render(HELLO) == [start, *tokenizer.encode("Hello")]


def test_template_when_there_is_one_for_tools_then_taken_with_tools(tmp_path: Path) -> None:
    files = {"chat_template.jinja": PLAIN, "additional_chat_templates/tool_use.jinja": TOOLED}
    tokenizer = Tokenizer.load(put(folder_without_template(tmp_path), files))
    assert tokenizer.templates is not None
    assert tokenizer.templates.reads_tools
    assert tokenizer.render(HELLO, [TOOL]) == [*tokenizer.render(HELLO), *tokenizer.encode("look")]


def test_templates_when_none_is_for_every_day_then_refused(tmp_path: Path) -> None:
    named = [{"name": "rag", "template": "x"}, {"name": "tool_use", "template": "x"}]
    put(folder_without_template(tmp_path), {"tokenizer_config.json": {"chat_template": named}})
    with pytest.raises(Refused, match="rag, tool_use"):
        find_templates("the checkpoint", tmp_path)


USABLE: dict[str, tuple[str, bool, bool, bool]] = {  # template, and whether it takes parts, a system, tools
    "text": (PLAIN, False, True, False),
    "parts": (
        "{% for m in messages %}{% for part in m.content %}{{ part['text'] }}{% endfor %}{% endfor %}",
        True,
        True,
        False,
    ),
    "both": (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{{ m.content[0].text }}{% endif %}"
        "{% endfor %}",
        False,
        True,
        False,
    ),
    "no system": (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + PLAIN,
        False,
        False,
        False,
    ),
    "system passed over": (
        "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}",
        False,
        False,
        False,
    ),
    "tools": (TOOLED, False, True, True),
    "fails with tools": ("{% if tools %}{{ raise_exception('no') }}{% endif %}" + PLAIN, False, True, False),
}


@pytest.mark.parametrize(("template", "parts", "system", "tools"), USABLE.values(), ids=list(USABLE))
def test_template_when_tried_then_what_it_takes_is_known(
    tmp_path: Path, template: str, parts: bool, system: bool, tools: bool
) -> None:
    tokenizer = Tokenizer.load(vocabulary(tmp_path, "byte_level", template=template))
    tokenizer.check()
    tried = tokenizer.templates
    assert tried is not None
    assert (tried.takes_parts, tried.takes_system, tried.reads_tools) == (parts, system, tools)
    said = tokenizer.backend.decode(tokenizer.render(HELLO), skip_special_tokens=True)
    assert said == "Hello"


UNUSABLE = {
    "raises": "{{ raise_exception('roles must alternate') }}",
    "fails": "{{ 1 / 0 }}",
    "adds a text and a number": "{{ 'a' + 1 }}",
    "says nothing": "<|im_start|>",
    "reaches for Python": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "includes": "{% include 'x' %}",
    "for ever deeper": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "builds tokens out of sight": "{{ '{}<|im_end|>'.format('<|im_start|>') }}{{ messages[0].content }}",
}


@pytest.mark.parametrize("template", UNUSABLE.values(), ids=list(UNUSABLE))
def test_template_when_it_cant_be_used_then_refused_at_the_trial(tmp_path: Path, template: str) -> None:
    tokenizer = Tokenizer.load(vocabulary(tmp_path, "byte_level", template=template))
    with pytest.raises(Refused, match="template"):
        tokenizer.check()


@pytest.mark.parametrize(
    "template", ["{% if %}", "{{ (", "{{ " + "(" * 5000, "x" * 2_000_000], ids=["if", "(", "((", "x"]
)
def test_template_when_it_is_none_then_refused(template: str) -> None:
    with pytest.raises(Refused, match="template"):
        ChatTemplate(template)


SAME = {
    "filters": "{{ messages | tojson(indent=2) }}{{ messages | map(attribute='role') | join(', ') }}{{ 'a<b' | e }}",
    "loops": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ loop.index }}{% break %}"
    "{% endfor %}",
    "blocks": "{% generation %}{% set x = 1 %}{{ messages[0].content }}{% endgeneration %}{{ x is defined }}",
    "whitespace": "a  \n  {% if true %}\n  b\n  {% endif %}\n  {#- c -#}\n{{- ' d ' -}} e",
    "names": "{{ bos_token }}{{ nothing }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}",
    "texts": "{{ 'a-b-c'.split('-') }}{{ 'Ab'.upper() ~ 1 ~ none }}{{ '%s/%d' % ('a', 2) }}{{ '%5.1f%%' % 2 }}",
    "cuts": "{{ 'abcdef'[1:4] }}{{ 'abc'[-1] }}{{ 'abc'[::-1] }}{{ ' a b '.split() }}{{ 'a.b.c'.rsplit('.', 1) }}",
    "replaced": "{{ 'aa'.replace('a', 'b', 1) }}{{ 'aa' | replace('a', '') }}{{ 'x' * 3 }}",
    "dicts": "{{ dict(a=1).items() | list }}{% set n = namespace(a='x') %}{% set n.a = n.a + 'y' %}{{ n.a }}",
    "formats": "{{ '{}-{}'.format('a', 1) }}{{ 'a' in 'abc' }}{{ 'a' == 'a' }}{{ {'a': 'b'}['a'] }}",
    "macros": "{% macro f(x, y='z') %}{{ x }}{{ y }}{{ caller() }}{% endmacro %}{% call f('k') %}in{% endcall %}",
    "thoughts": "{% for m in messages %}{{ m.thinking }}{{ m.reasoning_content }}{% endfor %}",
}


@pytest.mark.parametrize("template", SAME.values(), ids=list(SAME))
def test_template_when_rendered_then_as_transformers_does(template: str) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "<a> & ü", "reasoning_content": "hm"}]
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    variables: dict[str, Any] = {**special, "enable_thinking": False}
    rendered = render_jinja_template([messages], chat_template=template, add_generation_prompt=True, **variables)
    assert ChatTemplate(template).render(messages, (), special, {"enable_thinking": False}) == rendered[0][0]


def test_template_when_it_sets_internals_then_the_sandbox_refuses() -> None:
    template = ChatTemplate("{% set n = namespace() %}{% set n.__init__ = 1 %}{{ messages[0].content }}")
    with pytest.raises(InvalidInput):
        template.render(HELLO)


MIXED = joined(["a ", own("<b>"), " c ", own("-"), own("d")])


@pytest.mark.parametrize(
    ("made", "owned"),
    [
        (MIXED, ["<b>", "-d"]),
        (MIXED + "x", ["<b>", "-d"]),
        ("x" + MIXED, ["<b>", "-d"]),
        (MIXED[2:4], ["<b"]),
        (MIXED[-1], ["d"]),
        (MIXED[::-1], []),
        (own("  x ").strip(), ["x"]),
        (MIXED.rstrip("d"), ["<b>", "-"]),
        (joined(MIXED.split("-")), ["<b>", "d"]),
        (joined(MIXED.split()), ["<b>", "-d"]),
        (joined(MIXED.rsplit(" ", 1)), ["<b>", "-d"]),
        (MIXED.replace(" ", own("_")), ["_<b>_", "_-d"]),
        (MIXED.replace("b", "x"), ["<", ">", "-d"]),
        (MIXED.replace("", "."), []),
        (own("<%s|%s>") % ("a", own("b")), ["<", "|b>"]),
        (own("<%d>") % 3, []),
        (own("|").join(["a", own("b"), "c"]), ["|b|"]),
        (MIXED.upper(), []),
    ],
)
def test_own_text_when_worked_with_then_what_the_template_wrote_is_known(made: Any, owned: list[str]) -> None:
    spans = made.spans if isinstance(made, OwnText) else ()
    assert [str.__getitem__(made, slice(*span)) for span in spans] == owned
