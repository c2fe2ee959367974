"""What `make soak` asks for: a few prompts in every way that a request can be put, and what a right answer is."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tests.support.cluster import ClusterMember

PROMPTS = (
    "Once upon a time",
    "The sea was calm and the sea was calm and the sea was",
    "one two three one two three one two",
    "A recipe for bread begins with flour, water, salt and yeast. " * 4,
    "x",
)
LENGTHS = (1, 12, 40)
SCHEMA = {"type": "object", "properties": {"good": {"type": "boolean"}}, "required": ["good"]}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "greedy": {"options": {"temperature": 0}},
    "penalties": {"options": {"temperature": 0, "repeat_penalty": 1.3, "frequency_penalty": 0.4}},
    "drawn": {"options": {"temperature": 0.9, "top_k": 30, "top_p": 0.9, "seed": 11}},
    "drawn freely": {"options": {"temperature": 1.2, "top_k": 0, "min_p": 0.01, "seed": 3}},
    "stop strings": {"options": {"temperature": 0, "stop": [" the", "e", "\u00ff"]}},
    "log probabilities": {"options": {"temperature": 0}, "logprobs": True, "top_logprobs": 3},
    "a schema": {"options": {"temperature": 0}, "format": SCHEMA},
}
"""Bodies of requests; each is asked for every prompt and length, and has one right answer."""
READ_DEADLINE_S = 240.0  # without a byte


@dataclass(frozen=True, slots=True)
class SoakAsk:
    """One request. It is told apart by its way, prompt and length."""

    way: str
    prompt: str
    tokens: int

    def body(self, model: str) -> dict[str, Any]:
        way = WAYS[self.way]
        options = {"stop": ["never said"], **way["options"], "num_predict": self.tokens}
        return {**way, "model": model, "prompt": self.prompt, "raw": True, "options": options}


@dataclass(frozen=True, slots=True)
class SoakAnswer:
    """What came. last: the line with `done`, nothing where it was cancelled. scores: of each token, where asked for."""

    text: str
    last: Mapping[str, Any]
    scores: Sequence[float]

    @property
    def end(self) -> tuple[int, str]:
        """How many tokens there are, and what ended them."""
        return self.last.get("eval_count", 0), self.last.get("done_reason", "")


ALL = tuple(SoakAsk(way, prompt, tokens) for way in WAYS for prompt in PROMPTS for tokens in LENGTHS)


class SoakFault(Exception):
    """What an answer ended with in place of its end."""


def read(member: ClusterMember, ask: SoakAsk, model: str, *, pieces: int | None = None) -> SoakAnswer:
    """The answer; with `pieces` it is cancelled after so many.

    Raises: OSError, HTTPException or ValueError where the call fails; SoakFault for an answer that tells of an error.
    """
    text, scores, count = "", [], 0
    with closing(member.lines("/api/generate", ask.body(model), timeout_s=READ_DEADLINE_S)) as lines:
        for line in lines:
            if "error" in line:
                raise SoakFault(line["error"])
            text += line.get("response", "")
            scores += [one["logprob"] for one in line.get("logprobs", ())]
            count += 1
            if line.get("done") or count == pieces:
                return SoakAnswer(text, line if line.get("done") else {}, scores)
    raise SoakFault("the answer ended without a word")


def flaw(ask: SoakAsk, came: SoakAnswer, right: SoakAnswer) -> str:
    """What is wrong with an answer beside the one that the ring gave while nobody else asked; empty: nothing. Of a
    cancelled one it is what came until then."""
    if not came.last:
        return "" if right.text.startswith(came.text) else "another text, before it was cancelled"
    if came.text != right.text:
        return "another text"
    if came.end != right.end or len(came.scores) != len(right.scores):
        return f"{came.end} and {len(came.scores)} scores, where {right.end} and {len(right.scores)} are right"
    return own_flaw(ask, came)


def own_flaw(ask: SoakAsk, came: SoakAnswer) -> str:
    """What an answer shows to be wrong by itself."""
    tokens, reason = came.end
    if tokens > ask.tokens or (reason == "length" and tokens != ask.tokens):
        return f"{tokens} tokens of {ask.tokens}, then {reason}"
    if ask.way == "a schema" and reason == "stop" and not _is_by_schema(came.text):
        return "not by the schema"
    return ""


def _is_by_schema(text: str) -> bool:
    try:
        return isinstance(json.loads(text)["good"], bool)
    except (ValueError, KeyError, TypeError):
        return False
