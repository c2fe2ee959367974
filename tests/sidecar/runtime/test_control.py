"""Content is content: what people write never becomes a control token, and harmless conversations stay as they were."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from kafila_sidecar.runtime.text.control import ControlledEncoder, control_tokens
from kafila_sidecar.runtime.text.conversation import for_template
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.support.vocabularies import (
    BASIC,
    CHAT_TEMPLATE,
    CONTROL,
    END,
    KINDS,
    MARKUP,
    ORDINARY,
    START,
    vocabulary,
)

MANY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
UNKNOWN = "<unk>"
HARMLESS = "hello"
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}

# Templates that trim, split, compare, measure, escape and rebuild what people write, and make tokens out of pieces.
TEMPLATES: Mapping[str, str] = {
    "plain": CHAT_TEMPLATE,
    "pieces": (
        "{% for m in messages %}{{ '<|im_' ~ 'start|>' ~ m.role + '\n' + m.content.strip() }}"
        "{{ '<|' + 'im_end' + '|>' }}{% endfor %}{{ '<|' + 'tool' + '|>' }}"
    ),
    "roles": "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|im_end|>{% endfor %}<|im_start|>",
    "macros": (
        "{% macro turn(role, text) %}<|im_start|>{{ role }}{{ caller() if caller }}{{ text }}<|im_end|>{% endmacro %}"
        "{% set ns = namespace(all='') %}{% for m in messages %}{% set ns.all = ns.all + turn(m.role, m.content) %}"
        "{% endfor %}{{ ns.all }}{% set end %}<|im_start|>{{ 'assistant' }}{% endset %}{{ end | trim }}"
    ),
    "thoughts": (
        "{% for m in messages %}<|im_start|>{{ m.role }}{% set text = m.content %}{% if '</think>' in text %}"
        "{% set text = text.split('</think>')[-1].lstrip('\n') %}<think></think>{% endif %}{{ text }}<|im_end|>"
        "{% endfor %}"
    ),
    "lists": (
        "{{ ['<|im_start|>', messages[-1].content, '<|im_end|>'] | join }}{{ '%s%s<|im_end|>' % ('<|tool|>', "
        "messages[0].content) }}{{ {'user': '<|im_start|>', 'system': '<|tool|>'}.get(messages[0].role, '') }}"
        "{{ messages | tojson }}{{ messages[0].content | length }}{{ messages[0].content[:4] }}"
        "{{ messages[0].content == '' }}"
        "{{ '<|im_start|>x'.replace('x', messages[0].content) }}{{ messages[0].content.replace('a', '<') }}"
    ),
}

Load = Callable[[str, str], Tokenizer]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    made: dict[tuple[str, str], Tokenizer] = {}

    def of(kind: str, template: str = "plain") -> Tokenizer:
        if (kind, template) not in made:
            folder = vocabulary(tmp_path_factory.mktemp(kind), kind, template=TEMPLATES[template])
            made[kind, template] = Tokenizer.load(folder)
        return made[kind, template]

    return of


def controls(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The control ids among `ids`, less that of what is in no token."""
    known = control_tokens(tokenizer.backend, tokenizer.templates.default.source if tokenizer.templates else "")
    numbers = {number for token, number in known.items() if token != UNKNOWN}
    return [number for number in ids if number in numbers]


def reference(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> str:
    """The text that transformers renders."""
    assert tokenizer.templates is not None
    variables: dict[str, Any] = {**tokenizer.templates.special_tokens, "enable_thinking": True}
    rendered = render_jinja_template(
        [[for_template(message) for message in messages]],
        tools=list(tools) or None,
        chat_template=tokenizer.templates.default.source,
        add_generation_prompt=True,
        **variables,
    )
    return str(rendered[0][0])


def conversation(first: str, second: str) -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": first},
        {"role": "user", "content": second},
        {"role": "assistant", "content": first, "thinking": second},
        {"role": "user", "content": first + second},
    ]


@pytest.mark.parametrize("template", list(TEMPLATES))
@pytest.mark.parametrize("kind", list(KINDS))
def test_conversation_when_harmless_then_the_ids_of_transformers(load: Load, kind: str, template: str) -> None:
    tokenizer = load(kind, template)
    for messages in (
        [{"role": "user", "content": " Hello  日本 <td>\n\n"}],
        conversation("be kind", "how are\n\nyou?"),
    ):
        expected = tokenizer.backend.encode(reference(tokenizer, messages), add_special_tokens=False).ids
        assert tokenizer.render(messages) == expected
        assert tokenizer.templates is not None
        rendered = tokenizer.templates.render([for_template(m) for m in messages], (), {"enable_thinking": True})
        assert tokenizer._encoder.encode_apart(rendered) == expected
        tokenizer.check()


def without_tokens(text: str) -> str:
    """As much text, and as empty, without a control token; a thought's end stays, since templates look for that."""
    return "</think>".join(part.replace("<", "(").replace("s>", "s)") for part in text.split("</think>"))


hostile = st.lists(
    st.sampled_from(
        [*CONTROL, *BASIC, *MARKUP, *ORDINARY, "<|im_", "end|>", "<|", "|>", "<", "s>", "assistant", "\n", " "]
    )
    | st.text("a<|>/ _", max_size=4),
    max_size=6,
).map("".join)


@pytest.mark.parametrize("template", list(TEMPLATES))
@pytest.mark.parametrize("kind", list(KINDS))
@MANY
@given(first=hostile, second=hostile)
def test_content_when_it_spells_control_tokens_then_text(
    load: Load, kind: str, template: str, first: str, second: str
) -> None:
    tokenizer = load(kind, template)
    ids = tokenizer.render(conversation(first, second))
    harmless = tokenizer.render(conversation(without_tokens(first), without_tokens(second)))
    assert controls(tokenizer, ids) == controls(tokenizer, harmless)


def test_names_when_drawn_again_and_again_then_no_added_token_is_found_half_in_one(load: Load) -> None:
    tokenizer = load("byte_fallback", "thoughts")
    text = tokenizer.templates.render([{"role": "user", "content": "<|im_start|>a "}], (), {})  # type: ignore[union-attr]
    controls = control_tokens(tokenizer.backend, "")
    ids = {tuple(ControlledEncoder(tokenizer.backend, controls).encode_apart(text)) for _ in range(60)}
    assert len(ids) == 1


@pytest.mark.parametrize("kind", ["byte_level", "ignoring_merges", "keeping_spaces", "smollm2"])
@MANY
@given(first=hostile, second=hostile)
def test_content_when_it_spells_control_tokens_then_still_said(load: Load, kind: str, first: str, second: str) -> None:
    tokenizer = load(kind, "plain")
    messages = conversation(first.replace("é", ""), second.replace("é", ""))
    text = tokenizer.backend.decode(tokenizer.render(messages), skip_special_tokens=False)
    blind = str.maketrans("", "", " \n")  # control tokens of one kind eat blanks
    assert text.translate(blind) == reference(tokenizer, messages).translate(blind)


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("token", [*CONTROL, *MARKUP, *BASIC])
def test_any_field_when_it_spells_a_control_token_then_text(load: Load, kind: str, token: str) -> None:
    tokenizer = load(kind, "plain")

    def said(word: str) -> list[int]:
        call = {"function": {"name": word, "arguments": {word: word}}}
        tool = {"type": "function", "function": {"name": word, "description": word, "parameters": {word: [word]}}}
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": word},
            {"role": "user", "content": word},
            {"role": "assistant", "content": word, "thinking": word, "tool_calls": [call]},
            {"role": "tool", "content": word, "tool_name": word},
            {"role": word, "content": "x"},
        ]
        return controls(tokenizer, tokenizer.render(messages, [TOOL, tool]))

    assert said(token) == said(HARMLESS)
    assert said(f"a{token}b{token}{token}") == said(HARMLESS)


def test_raw_prompt_when_it_has_control_tokens_then_control_tokens(load: Load) -> None:
    tokenizer = load("byte_level", "plain")
    start, end = (tokenizer.backend.token_to_id(token) for token in (START, END))
    ids = tokenizer.encode(f"{START}user{END}")
    assert (ids[0], ids[-1]) == (start, end)


def test_conversation_when_there_is_no_template_then_text_too(tmp_path: Path) -> None:
    folder = vocabulary(tmp_path, "ignoring_merges")
    (folder / "chat_template.jinja").unlink()
    tokenizer = Tokenizer.load(folder)
    ids = tokenizer.render([{"role": "user", "content": f"a{END}"}])
    assert controls(tokenizer, ids) == [tokenizer.backend.token_to_id("<s>")]
    assert tokenizer.render([{"role": "user", "content": "a"}]) == tokenizer.encode("a")


def test_control_tokens_when_chosen_then_no_ways_to_spell_text(load: Load) -> None:
    found = control_tokens(load("byte_level", "plain").backend, CHAT_TEMPLATE)
    assert set(found) == {*CONTROL, *BASIC, "<think>", "</think>"}
