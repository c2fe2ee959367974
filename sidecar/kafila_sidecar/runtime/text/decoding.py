"""Token ids of one answer to text: what is shown is at every moment the beginning of what all its ids decode to.

A tokenizer file names its decoder, a chain of small steps over the tokens' own texts. Here each step takes one token
after another and lets go of what no later token can change: bytes once their character is whole, a run of single-byte
tokens once it is over (one wrong byte makes the `tokenizers` library show the whole run as U+FFFD). The work per token
is bounded. Decoders that are not known are refused, since a wrong guess would give wrong text and no error; so are
those that replace by a regular expression, which may take any time.

An answer that ends within a character ends before it.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from tokenizers import Tokenizer

from kafila_sidecar.errors import Refused

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

MOST_STEPS = 32  # of one decoder; real ones have up to five
MOST_GROWTH = 64  # times as many characters as a token has; real decoders replace one by one
_BY_TOKEN = frozenset({"Strip", "Metaspace", "WordPiece"})
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>", re.ASCII)  # as Rust's parser of hexadecimal numbers reads it


class DecodeStep(Protocol):
    """One step of a decoder, for one answer."""

    def feed(self, text: str) -> list[str]:
        """The texts that are certain after one more."""

    def finish(self) -> list[str]:
        """What was held back, once nothing more comes."""


class TokenByToken:
    """A step of the `tokenizers` library's own that looks at one token at a time, and at most treats the first one
    otherwise. `known` keeps what it makes of later tokens."""

    def __init__(self, decoder: Any, known: dict[str, str], *, at_start: bool) -> None:
        self._decoder = decoder
        self._known = known
        self._at_start = at_start

    def feed(self, text: str) -> list[str]:
        if self._at_start:
            self._at_start = False
            return [str(self._decoder.decode([text]))]
        made = self._known.get(text)
        if made is None:
            made = self._known[text] = str(self._decoder.decode(["", text]))
        return [made]

    def finish(self) -> list[str]:
        return []


class Spaced:
    """A tokenizer without a decoder: a space before each token but the first."""

    def __init__(self, *, at_start: bool) -> None:
        self._at_start = at_start

    def feed(self, text: str) -> list[str]:
        space, self._at_start = "" if self._at_start else " ", False
        return [space + text]

    def finish(self) -> list[str]:
        return []


class ByteRuns:
    """Tokens like <0xE6> are single bytes, everything else is text as it stands."""

    def __init__(self) -> None:
        self._run = bytearray()

    def feed(self, text: str) -> list[str]:
        byte = _byte_in(text)
        if byte is not None:
            self._run.append(byte)
            return []
        return [*self._over(), text]

    def finish(self) -> list[str]:
        unfinished = len(_unfinished(self._run))
        del self._run[len(self._run) - unfinished :]
        return self._over()

    def _over(self) -> list[str]:
        run, self._run = self._run, bytearray()
        try:
            return [run.decode()] if run else []
        except UnicodeDecodeError:
            return [REPLACEMENT] * len(run)


class CharacterBytes:
    """Each character of a token stands for a byte, as GPT-2 has it; a token with any other character is text."""

    def __init__(self, known: dict[str, bytes]) -> None:
        self._known = known
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, text: str) -> list[str]:
        data = self._known.get(text)
        if data is None:
            data = self._known[text] = _bytes_of(text)
        return [self._decoder.decode(data)]

    def finish(self) -> list[str]:
        return []


class WithoutStart:
    """Takes up to `most` times the character `content` off the beginning of the whole text."""

    def __init__(self, content: str, most: int) -> None:
        self._content = content
        self._most = most

    def feed(self, text: str) -> list[str]:
        if not self._most or not text:
            return [text]
        rest = text.lstrip(self._content)
        cut = min(len(text) - len(rest), self._most)
        self._most = self._most - cut if cut == len(text) else 0
        return [text[cut:]]

    def finish(self) -> list[str]:
        return []


class TextStream:
    """Token ids of one answer to text, whole characters at a time."""

    def __init__(self, token: Callable[[int], str | None], steps: Iterable[DecodeStep]) -> None:
        self._token = token
        self._steps = list(steps)

    def add(self, token: int) -> str:
        """The text that is certain now and wasn't before; it may be empty. Ids that the tokenizer lacks have none."""
        text = self._token(token)
        return "" if text is None else "".join(_through(self._steps, [text]))

    def finish(self) -> str:
        """What was held back, less a character that never became whole."""
        return "".join(
            text for at, step in enumerate(self._steps) for text in _through(self._steps[at + 1 :], step.finish())
        )


@dataclass(frozen=True, slots=True)
class Decoding:
    """How one tokenizer's tokens become text. `makers` take whether the text begins here, or goes on from a prompt."""

    token: Callable[[int], str | None]
    makers: tuple[Callable[[bool], DecodeStep], ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Decoding":
        """Raises: Refused for a decoder that is not known."""
        texts: dict[int, str | None] = {}

        def token(number: int) -> str | None:
            if number not in texts:
                texts[number] = tokenizer.id_to_token(number)
            return texts[number]

        return cls.read(described(tokenizer), token)

    @classmethod
    def read(cls, steps: Mapping[str, Any] | None, token: Callable[[int], str | None]) -> "Decoding":
        """As `of`, by what `described` says. Raises: Refused for a decoder that is not known."""
        return cls(token, tuple(_makers(steps)))

    def bytes_of(self, number: int) -> bytes:
        """What a token stands for within a text, which may be a part of a character; b"" where there is no token."""
        text = self.token(number)
        if text is None:
            return b""
        for make in self.makers:
            step = make(False)
            if isinstance(step, CharacterBytes):
                return _bytes_of(text)
            if isinstance(step, ByteRuns) and (byte := _byte_in(text)) is not None:
                return bytes([byte])
            text = "".join([*step.feed(text), *step.finish()])
        return text.encode()

    def stream(self, *, at_start: bool) -> TextStream:
        """A new answer's text. One that does not begin here keeps the space that its first token may begin with."""
        return TextStream(self.token, [make(at_start) for make in self.makers])


def described(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """A tokenizer's decoder in JSON, None where it has none. Raises: Refused for one that is written in code."""
    if tokenizer.decoder is None:
        return None
    try:
        return dict(json.loads(tokenizer.decoder.__getstate__()))
    except Exception as error:  # the library raises its own kinds
        raise Refused("the checkpoint's tokenizer has a decoder that is written in code: choose another") from error


def _makers(decoder: Mapping[str, Any] | None) -> Iterator[Callable[[bool], DecodeStep]]:
    if decoder is None:
        yield lambda at_start: Spaced(at_start=at_start)
        return
    fused = False
    for step in _bounded(decoder):
        match step:
            case {"type": "Fuse"}:
                fused = True
            case {"type": "ByteLevel"} if not fused:
                fused = True
                yield _character_bytes()
                yield lambda at_start: WithoutStart(" ", int(at_start))  # of a turn, where templates end with a line
            case {"type": "ByteFallback"} if not fused:
                yield lambda _: ByteRuns()
            case {"type": "Strip", "content": str(content), "start": int(start), "stop": 0} if fused:
                yield _without_start(content, start)
            case {"type": "Replace", "pattern": {"String": str(pattern)}} if len(pattern) == 1 or (
                pattern and not fused
            ):
                yield _token_by_token(step)
            case {"type": str(kind)} if not fused and kind in _BY_TOKEN:
                yield _token_by_token(step)
            case _:
                kind = str(step.get("type"))[:40]
                raise Refused(f"the checkpoint's tokenizer has a decoder that is not known ({kind}): choose another")


def _token_by_token(step: Mapping[str, Any]) -> Callable[[bool], DecodeStep]:
    alone = Tokenizer.from_str(
        json.dumps({"model": {"type": "WordLevel", "vocab": {}, "unk_token": ""}, "decoder": step})
    )
    known: dict[str, str] = {}
    return lambda at_start: TokenByToken(alone.decoder, known, at_start=at_start)


def _character_bytes() -> Callable[[bool], DecodeStep]:
    known: dict[str, bytes] = {}
    return lambda _: CharacterBytes(known)


def _without_start(content: str, most: int) -> Callable[[bool], DecodeStep]:
    return lambda at_start: WithoutStart(content, most if at_start else 0)


def _bounded(decoder: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The steps one after another. Raises: Refused for more work or text a token than real decoders make."""
    steps = list(islice(_flat(decoder), MOST_STEPS + 1))
    growth = 1
    for step in steps:
        if step.get("type") == "Replace":
            growth *= max(1, len(str(step.get("content"))))
    if len(steps) > MOST_STEPS or growth > MOST_GROWTH:
        raise Refused("the checkpoint's tokenizer has a decoder that makes texts without end of tokens: choose another")
    return steps


def _flat(step: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if step.get("type") != "Sequence":
        yield step
        return
    for inner in step["decoders"]:
        yield from _flat(inner)


def _through(steps: list[DecodeStep], texts: list[str]) -> list[str]:
    for step in steps:
        texts = [made for text in texts for made in step.feed(text)]
    return texts


def _byte_in(token: str) -> int | None:
    """Which byte a token like <0xE6> stands for."""
    byte = _BYTE.fullmatch(token)
    return None if byte is None else int(byte[1], 16)


def _unfinished(data: bytes | bytearray) -> bytes:
    """The bytes at the end that begin a character and don't end it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return bytes(decoder.getstate()[0])


def _byte_of_character() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 characters stand for themselves, the other bytes in turn for U+0100 and on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + at): byte for at, byte in enumerate(others)}


_BYTE_OF = _byte_of_character()


def _bytes_of(text: str) -> bytes:
    try:
        return bytes(_BYTE_OF[character] for character in text)
    except KeyError:
        return text.encode()
