"""Renderings to ids, where a control token is one only if the template wrote it.

Text that people wrote may spell a control token. The checkpoint's own tokenizer would take it for one, and so would it
two pieces that only spell one together. As long as all control tokens that it finds are the template's own, what it
gives is right. Else a twin of it encodes the text: the same in all but the control tokens' names, which are unguessable
there, and stand in the text where the template wrote the tokens.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterator
from functools import cached_property
from math import ceil, log2
from string import ascii_lowercase
from typing import Any

from tokenizers import Tokenizer

from kafila_sidecar.runtime.text.provenance import OwnText

_NAME_BITS = 112
_LETTERS = ascii_lowercase + "αβγδεζηθικλμνξοπρστυφχψω"
_BAR_TOKEN = re.compile(r"<[|｜].*[|｜]>", re.DOTALL)
_MARKUP = re.compile(r"[<\[{].+[>\]}]", re.DOTALL)


def control_tokens(tokenizer: Tokenizer, template: str) -> dict[str, int]:
    """The added tokens that are no text: special ones, ones in bars, and markup that the template speaks of.

    Others, such as runs of blanks or HTML, are how the tokenizer spells ordinary text.
    """
    return {
        token.content: number
        for number, token in tokenizer.get_added_tokens_decoder().items()
        if token.special
        or _BAR_TOKEN.fullmatch(token.content)
        or (_MARKUP.fullmatch(token.content) and token.content in template)
    }


class ControlledEncoder:
    """Encodes renderings for one tokenizer. `controls`: its control tokens' ids by their text."""

    def __init__(self, tokenizer: Tokenizer, controls: dict[str, int]) -> None:
        self._tokenizer = tokenizer
        self._controls = controls
        self._ids = frozenset(controls.values())

    def encode(self, text: OwnText) -> list[int]:
        """The ids of a rendering; nothing is put in front of it or after it."""
        encoding = self._tokenizer.encode("".join((text,)), add_special_tokens=False)
        ids = list(encoding.ids)
        if self._ids.isdisjoint(ids):
            return ids
        found = [span for number, span in zip(ids, encoding.offsets, strict=True) if number in self._ids]
        return ids if all(text.owns(*span) for span in found) else self.encode_apart(text)

    def encode_apart(self, text: OwnText) -> list[int]:
        """As `encode`, by the twin, whatever the text says."""
        twin, names = self._twin
        return list(twin.encode(_renamed(text, self._pattern, names), add_special_tokens=False).ids)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Of several tokens that begin at one place the longest, as in the tokenizer."""
        longest_first = sorted(self._controls, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    @cached_property
    def _twin(self) -> tuple[Tokenizer, dict[str, str]]:
        """Made when it is first wanted: it takes as much memory as the tokenizer."""
        letters = _letters_of_no_token(self._tokenizer)
        length = ceil(_NAME_BITS / log2(len(letters)))
        names = {token: "".join(secrets.choice(letters) for _ in range(length)) for token in self._controls}
        described = json.loads(self._tokenizer.to_str())
        _rename(described, lambda token: names.get(token, token))
        return Tokenizer.from_str(json.dumps(described)), names


def _letters_of_no_token(tokenizer: Tokenizer) -> list[str]:
    """For names: an added token with a name's first letter at its end could be found half in the text before it."""
    used = {letter for token in tokenizer.get_added_tokens_decoder().values() for letter in token.content}
    free = [letter for letter in _LETTERS if letter not in used]
    return free if len(free) > 1 else list(_LETTERS)


def _renamed(text: OwnText, pattern: re.Pattern[str], names: dict[str, str]) -> str:
    def parts() -> Iterator[str]:
        at = 0
        for start, end in text.spans:
            yield plain[at:start]
            yield pattern.sub(lambda token: names[token[0]], plain[start:end])
            at = end
        yield plain[at:]

    plain = "".join((text,))
    return "".join(parts())


def _rename(described: dict[str, Any], name: Callable[[str], str]) -> None:
    """Gives tokens other names in the JSON of a tokenizer; no merges lead to those any more."""
    described |= {"post_processor": None, "truncation": None, "padding": None}
    for token in described["added_tokens"]:
        token["content"] = name(token["content"])
    model = described["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {name(piece): number for piece, number in model["vocab"].items()}
    else:
        model["vocab"] = [[name(piece), score] for piece, score in model["vocab"]]
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = name(model["unk_token"])
    if "merges" in model:
        pairs = (merge if isinstance(merge, list) else merge.split(" ", 1) for merge in model["merges"])
        model["merges"] = [pair for pair in pairs if all(name(piece) == piece for piece in (*pair, "".join(pair)))]
