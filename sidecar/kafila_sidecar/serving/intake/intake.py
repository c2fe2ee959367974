"""From a request to token ids, a sampler and limits: everything that may be refused, before anything is computed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Protocol

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.text.decoding import TextStream
from kafila_sidecar.runtime.text.options import resolve
from kafila_sidecar.runtime.text.prompt import is_chat
from kafila_sidecar.runtime.text.sample import Sampler
from kafila_sidecar.runtime.text.stop import StopStrings
from kafila_sidecar.runtime.text.vocabulary import Vocabulary
from kafila_sidecar.serving.intake.limits import (
    AnswerLimits,
    check_replay,
    given_options,
    limits_of,
    refuse_unsupported,
)
from kafila_sidecar.serving.intake.prompt import Framer

NOTHING_TOLD = ring_pb2.Replay()
DEFAULT_KEEP_TOKENS = 4  # Ollama's num_keep


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that may be answered. What the sampler, the text and the stop strings have seen is kept in them.

    request: as it was asked. prompt: its ids. ends: the ids that end an answer. began: seconds on the head's clock.
    guesses: the most that a step may have, where the request says.
    """

    request: pb.GenerateRequest
    prompt: Sequence[int]
    limits: AnswerLimits
    sampler: Sampler
    text: TextStream
    stops: StopStrings
    framer: Framer
    ends: frozenset[int]
    began: float
    guesses: int | None = None


class SessionText(Protocol):
    """Renders and encodes one checkpoint's prompts; see `runtime.text.apart.text_process.TextProcess`."""

    async def vocabulary(self) -> Vocabulary: ...
    async def ids(
        self, prompt: str, *, limit: int, keep: int, truncate: bool, cut_to: int | None = None
    ) -> Sequence[int]: ...
    def kill(self) -> None: ...
    async def close(self) -> None: ...


class Intake:
    """Prepares requests for one checkpoint; `text` renders and encodes them, one after another."""

    def __init__(self, *, text: SessionText, vocabulary: Vocabulary, context_tokens: int) -> None:
        self._text = text
        self._vocabulary = vocabulary
        self._context_tokens = context_tokens

    async def prepare(self, request: pb.GenerateRequest, replay: ring_pb2.Replay) -> PreparedRequest:
        """The request, ready to be answered; with the prompt's ids and the seed of `replay`, if it has begun before.

        Raises:
            InvalidInput: options, prompt or replay make no sense, or the prompt is too long and may not be cut.
            Refused: the checkpoint's template or tokenizer does not come to an end with this prompt.
            TimedOut: other prompts took too long before.
        """
        refuse_unsupported(request)
        began = monotonic()
        limits = limits_of(request.options, self._context_tokens)
        vocabulary = self._vocabulary
        options = resolve(given_options(request.options), vocabulary.generation_config)
        stops = StopStrings(request.options.stop)
        if replay != NOTHING_TOLD:
            check_replay(replay, limits, vocabulary.size)
            tokens: Sequence[int] = list(replay.beginning.prompt)
            options = replace(options, seed=replay.beginning.seed)
        else:
            tokens = await self._encode(request, limits)
        framed = is_chat(request.prompt)
        return PreparedRequest(
            request=request,
            prompt=tokens,
            limits=limits,
            sampler=Sampler(options, tokens, vocabulary.size, vocabulary.gaps),
            text=vocabulary.stream(after_raw_prompt=not framed),
            stops=stops,
            framer=Framer(framed=framed),
            ends=vocabulary.eos_ids,
            began=began,
            guesses=request.options.guesses if request.options.HasField("guesses") else None,
        )

    def close(self) -> None:
        """No more requests."""
        self._text.kill()

    async def _encode(self, request: pb.GenerateRequest, limits: AnswerLimits) -> Sequence[int]:
        """The prompt's ids, at least one, with room for at least one token of answer. One that has to be cut leaves a
        quarter of the context, or as much as is asked for: an answer of one token would be none."""
        keep = request.options.num_keep if request.options.HasField("num_keep") else DEFAULT_KEEP_TOKENS
        quarter, wanted = max(1, limits.context_tokens // 4), request.options.num_predict
        room = min(wanted, quarter) if wanted > 0 else quarter
        tokens = await self._text.ids(
            request.prompt,
            limit=limits.context_tokens - 1,
            keep=keep,
            truncate=request.truncate,
            cut_to=limits.context_tokens - room,
        )
        if not tokens:
            raise InvalidInput("the prompt is empty: there is nothing to answer")
        return tokens
