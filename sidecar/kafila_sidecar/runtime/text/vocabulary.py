"""What the head needs of a tokenizer beside encoding, so that it need not have it: as it travels from the process that
does."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafila_sidecar.runtime.answer.formats import PLAIN, AnswerFormat
from kafila_sidecar.runtime.answer.reading import TAIL_TOKENS, AnswerReader, PlainReader, reader_of
from kafila_sidecar.runtime.text.decoding import Decoding, TextStream, described

if TYPE_CHECKING:
    from kafila_sidecar.runtime.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """size: all ids are below it. gaps: those below it that are no token. eos_ids: those that end an answer.
    generation_config: the checkpoint's, {} where it has none. controls: ids that are no text. answers: how answers are
    read. first: the id that the tokenizer puts in front of every text, None for none."""

    size: int
    gaps: Sequence[int]
    eos_ids: frozenset[int]
    generation_config: Mapping[str, Any]
    decoding: Decoding
    controls: frozenset[int] = frozenset()
    answers: AnswerFormat = PLAIN
    first: int | None = None

    def stream(self, *, after_raw_prompt: bool = False) -> TextStream:
        """See `Tokenizer.stream`."""
        return self.decoding.stream(at_start=not after_raw_prompt)

    def reader(self, prompt: Sequence[int], *, is_chat: bool, tools: bool) -> AnswerReader:
        """A new answer's pieces. prompt: its ids. tools: whether calls are looked for."""
        if not is_chat:
            return PlainReader()
        end = b"".join(map(self.bytes_of, prompt[-TAIL_TOKENS:])).decode(errors="replace")
        return reader_of(self.answers, prompt_end=end, tools=tools)

    def bytes_of(self, number: int) -> bytes:
        """See `Decoding.bytes_of`."""
        return self.decoding.bytes_of(number)


def to_json(tokenizer: "Tokenizer") -> bytes:
    """What `from_json` reads."""
    texts = [tokenizer.backend.id_to_token(number) for number in range(tokenizer.size)]
    told = {
        "texts": texts,
        "decoder": described(tokenizer.backend),
        "eos_ids": sorted(tokenizer.eos_ids),
        "controls": sorted(tokenizer.control_ids),
        "answers": tokenizer.answers.to_json(),
        "generation_config": tokenizer.generation_config,
        "first": tokenizer.first_id,
    }
    return json.dumps(told, ensure_ascii=False).encode()


def from_json(told: bytes) -> Vocabulary:
    """Raises: Refused for a decoder that is not known. Takes a while for a large vocabulary."""
    fields = json.loads(told)
    texts: list[str | None] = fields["texts"]

    def token(number: int) -> str | None:
        return texts[number] if 0 <= number < len(texts) else None

    return Vocabulary(
        size=len(texts),
        gaps=tuple(number for number, text in enumerate(texts) if text is None),
        eos_ids=frozenset(fields["eos_ids"]),
        controls=frozenset(fields["controls"]),
        answers=AnswerFormat.from_json(fields["answers"]),
        generation_config=fields["generation_config"],
        decoding=Decoding.read(fields["decoder"], token),
        first=fields["first"],
    )
