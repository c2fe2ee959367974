"""Checkpoints that say what they are made to say: one that calls a tool and answers once it has what came of it, and
one that thinks before it answers."""

import json
from pathlib import Path

from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.e2e.test_abilities import SAID, SPEAKS_OF
from tests.support.saying import TEMPLATE, saying_folder
from tests.support.vocabularies import TOOL, vocabulary

PLACE = "the 🦜 there"
CALL = {"name": "look", "arguments": {"at": PLACE}}
CALLED = f"<tool_call>{json.dumps(CALL, ensure_ascii=False)}</tool_call>"
ANSWER = "There is a 🦜🦜."
"""Of characters that are several tokens each."""
CALLING = (
    "{# <tool_call> tool_call.name #}{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}{{ message.role }}: {{ message.name or '' }} {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|answer|>{% if messages[-1].role == 'tool' %}SKIPPED{% endif %}{% endif %}"
)
"""SKIPPED: as many tokens as what is said before the results are there."""


def calling_folder(folder: Path) -> Path:
    """Says CALLED and ends, and behind results says ANSWER."""
    tokenizer = Tokenizer.load(vocabulary(folder, "byte_level"))
    called, answer = (tokenizer.backend.encode(text, add_special_tokens=False).ids for text in (CALLED, ANSWER))
    before = [*called, min(tokenizer.eos_ids)]
    return saying_folder(folder, [*before, *answer], template=CALLING.replace("SKIPPED", TOOL * len(before)))


def answers_when_cut(folder: Path) -> tuple[str, ...]:
    """What is whole of the first 1, 2, … tokens of ANSWER."""
    backend = Tokenizer.load(folder).backend
    ids = backend.encode(ANSWER, add_special_tokens=False).ids
    return tuple(backend.decode(ids[:most]).rstrip("\ufffd") for most in range(1, len(ids) + 1))


def thinking_folder(folder: Path) -> Path:
    """Says a thought, a content and calls, see `tests.e2e.test_abilities`."""
    ids = Tokenizer.load(vocabulary(folder, "byte_level")).backend.encode(SAID, add_special_tokens=False).ids
    return saying_folder(folder, ids, template=SPEAKS_OF + TEMPLATE)
