"""From a request to token ids, a sampler and limits: everything that may be refused, before anything is computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Protocol

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.answer.calls import Call
from kafila_sidecar.runtime.answer.reading import AnswerReader, PlainReader
from kafila_sidecar.runtime.constraint.constraint import Constraint
from kafila_sidecar.runtime.constraint.constraints import Constraints
from kafila_sidecar.runtime.constraint.held import HeldAnswer
from kafila_sidecar.runtime.text.conversation import TOO_LONG, fit_tokens
from kafila_sidecar.runtime.text.decoding import TextStream
from kafila_sidecar.runtime.text.options import resolve
from kafila_sidecar.runtime.text.prompt import is_chat
from kafila_sidecar.runtime.text.sample import Sampler
from kafila_sidecar.runtime.text.stop import StopStrings
from kafila_sidecar.runtime.text.vocabulary import Vocabulary
from kafila_sidecar.serving.intake.answers import ReadCalls, no_calls
from kafila_sidecar.serving.intake.limits import (
    AnswerLimits,
    check_replay,
    given_options,
    limits_of,
    refuse_unsupported,
)
from kafila_sidecar.serving.intake.prompt import Framer

NOTHING_TOLD = ring_pb2.Replay()


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that may be answered. What the sampler, the text, the stop strings and the rest have seen is kept in
    them.

    request: as it was asked. prompt: its ids. ends: the ids that end an answer. began: seconds on the head's clock.
    reader: tells thoughts, content and calls apart. read_calls: reads those. held: the format that the answer is held
    to, if any. top: how many of the likeliest tokens are told with each token's log probability; None: neither. spell:
    a token's own text.
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
    reader: AnswerReader = field(default_factory=PlainReader)
    read_calls: ReadCalls = no_calls
    held: HeldAnswer | None = None
    top: int | None = None
    spell: Callable[[int], bytes] = bytes
    guesses: int | None = None


class SessionText(Protocol):
    """Renders and encodes one checkpoint's prompts; see `runtime.text.apart.text_process.TextProcess`."""

    async def vocabulary(self) -> Vocabulary: ...
    async def ids(
        self,
        prompt: str,
        *,
        limit: int,
        keep: int,
        truncate: bool,
        cut_to: int | None = None,
        plain: bool = False,
        suffix: str = "",
        begun: bool = False,
    ) -> Sequence[int]: ...
    async def calls(self, text: str, *, reader: str, prompt: str) -> Sequence[Call]: ...
    def kill(self) -> None: ...
    async def close(self) -> None: ...


class Intake:
    """Prepares requests for one checkpoint; `text` renders and encodes them, one after another."""

    def __init__(self, *, text: SessionText, vocabulary: Vocabulary, context_tokens: int) -> None:
        self._text = text
        self._vocabulary = vocabulary
        self._context_tokens = context_tokens
        self._constraints = Constraints(vocabulary)

    async def prepare(self, request: pb.GenerateRequest, replay: ring_pb2.Replay) -> PreparedRequest:
        """The request, ready to be answered; with the prompt's ids and the seed of `replay`, if it has begun before.

        Raises:
            InvalidInput: options, prompt, format or replay make no sense, or the prompt is too long and may not be cut.
            Refused: the checkpoint's template or tokenizer does not come to an end with this prompt.
            TimedOut: other prompts took too long before.
        """
        refuse_unsupported(request)
        began = monotonic()
        limits = limits_of(request.options, self._context_tokens, shifts=request.shift)
        vocabulary = self._vocabulary
        options = resolve(given_options(request.options), vocabulary.generation_config)
        stops = StopStrings(request.options.stop)
        if replay != NOTHING_TOLD:
            check_replay(replay, limits, vocabulary.size)
        constraint = await self._constraint(request)
        if replay != NOTHING_TOLD:
            tokens: Sequence[int] = list(replay.beginning.prompt)
            options = replace(options, seed=replay.beginning.seed)
        else:
            tokens = await self._encode(request, limits)
        framed = _is_framed(request)
        reader = vocabulary.reader(tokens, is_chat=_is_answered_apart(request), tools=self._reads_calls(request))
        return PreparedRequest(
            request=request,
            prompt=tokens,
            limits=limits,
            sampler=Sampler(options, tokens, vocabulary.size, vocabulary.gaps),
            text=vocabulary.stream(after_raw_prompt=not framed or bool(request.suffix) or request.begun),
            stops=stops,
            framer=Framer(framed=framed),
            ends=vocabulary.eos_ids,
            began=began,
            reader=reader,
            read_calls=partial(self._text.calls, reader=vocabulary.answers.reads_calls_by, prompt=request.prompt),
            held=None if constraint is None else self._held(request, constraint, reader),
            top=request.top_logprobs if request.logprobs else None,
            spell=vocabulary.bytes_of,
            guesses=request.options.guesses if request.options.HasField("guesses") else None,
        )

    def close(self) -> None:
        """No more requests."""
        self._text.kill()

    def _reads_calls(self, request: pb.GenerateRequest) -> bool:
        """Calls that begin like any JSON can't be told from an answer that has to be JSON."""
        call = self._vocabulary.answers.call
        return request.tools and not (request.format and call is not None and not call.start)

    async def _constraint(self, request: pb.GenerateRequest) -> Constraint | None:
        if not request.format:
            return None
        thinks = self._vocabulary.answers.thinks and _is_answered_apart(request)
        return await self._constraints.make(request.format, strict=request.strict, after_thought=thinks)

    def _held(self, request: pb.GenerateRequest, constraint: Constraint, reader: AnswerReader) -> HeldAnswer:
        vocabulary, call = self._vocabulary, self._vocabulary.answers.call
        return HeldAnswer(
            constraint,
            opens=vocabulary.answers.opens if reader.may_think else None,
            calls=call.first if call is not None and request.tools and _is_answered_apart(request) else None,
            ends=vocabulary.eos_ids,
        )

    async def _encode(self, request: pb.GenerateRequest, limits: AnswerLimits) -> Sequence[int]:
        """The prompt's ids, at least one."""
        tokens = await (self._beginning if request.embeds else self._fitted)(request, limits)
        if not tokens:
            raise InvalidInput("the prompt is empty: there is nothing to answer")
        return tokens

    async def _beginning(self, request: pb.GenerateRequest, limits: AnswerLimits) -> Sequence[int]:
        """Of a text that is to be embedded, which may fill the context; of a longer one the beginning, as in Ollama,
        and the token that ends a text if there is one."""
        most = limits.context_tokens
        tokens = await self._text.ids(
            request.prompt, limit=most, keep=-1, truncate=request.truncate, cut_to=most + 1, plain=True
        )
        if len(tokens) <= most:
            return tokens
        return [*tokens[: most - 1], tokens[-1 if tokens[-1] in self._vocabulary.eos_ids else most - 1]]

    async def _fitted(self, request: pb.GenerateRequest, limits: AnswerLimits) -> Sequence[int]:
        """As in Ollama they may fill the context if the answer shifts; else there is
        room for at least one token of answer, and one that has to be cut leaves a quarter of the context, or as much as
        is asked for: an answer of one token would be none."""
        keep, most = limits.keep, limits.context_tokens - (not limits.shifts)
        quarter, wanted = max(1, limits.context_tokens // 4), request.options.num_predict
        room = 0 if limits.shifts else min(wanted, quarter) if wanted > 0 else quarter
        tokens = await self._text.ids(
            request.prompt,
            limit=most,
            keep=keep,
            truncate=request.truncate,
            cut_to=limits.context_tokens - room,
            plain=request.plain,
            suffix=request.suffix,
            begun=request.begun,
        )
        if not tokens or not request.context:
            return tokens
        return self._after(request, tokens, limit=most, keep=keep, cut_to=limits.context_tokens - room)

    def _after(
        self, request: pb.GenerateRequest, tokens: Sequence[int], *, limit: int, keep: int, cut_to: int
    ) -> Sequence[int]:
        """The prompt's ids behind those of the conversation before, which begin the text."""
        before, vocabulary = request.context, self._vocabulary
        if not all(0 <= token < vocabulary.size for token in before):
            raise InvalidInput("the context holds a number that is no token of this session's model: leave it out")
        joined = [*before, *(tokens[1:] if tokens[0] == vocabulary.first else tokens)]
        if len(joined) <= limit:
            return joined
        if not request.truncate:
            raise InvalidInput(TOO_LONG)
        return fit_tokens(joined, limit=cut_to, keep=keep)


def _is_framed(request: pb.GenerateRequest) -> bool:
    """Whether the prompt is a conversation in an envelope, whose answer comes in frames."""
    return not request.plain and is_chat(request.prompt)


def _is_answered_apart(request: pb.GenerateRequest) -> bool:
    """Whether thoughts and calls are told apart from content: not in what is filled in between two texts."""
    return _is_framed(request) and not request.suffix
