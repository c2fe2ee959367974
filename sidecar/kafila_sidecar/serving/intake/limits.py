"""Within which limits a request is answered, and what is refused before anything is computed. Pure."""

import math
from dataclasses import dataclass
from typing import Any

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.serving.intake.window import Window
from kafila_sidecar.session.terms import SMALLEST_CONTEXT_TOKENS

DEFAULT_KEEP_TOKENS = 4  # Ollama's num_keep
MOST_CONTEXTS = 10  # of an answer that goes on when the context is full, as in Ollama
MOST_TOP = 20  # likeliest tokens beside each one, as in Ollama
MOST_REQUEST_BYTES = 16 << 20  # a prompt with all that comes with it; a million tokens of English have some 5 MB


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """How long the sequence may become. context_tokens bounds prompt and answer together, unless the answer `shifts`:
    then the oldest tokens but the first `keep` make room (all of the prompt is kept for a negative number)."""

    context_tokens: int
    output_tokens: int | None  # None: until the context is full
    keep: int = DEFAULT_KEEP_TOKENS
    shifts: bool = False

    def reason_to_stop(self, total_tokens: int, output_tokens: int) -> bool:
        """Whether the answer may not grow any more."""
        full = total_tokens >= self.context_tokens and not self.shifts
        return full or (self.output_tokens is not None and output_tokens >= self.output_tokens)

    def window(self, prompt_tokens: int) -> Window:
        """What there is of a text that began with such a prompt."""
        keep = prompt_tokens if self.keep < 0 else self.keep
        return Window(self.context_tokens, min(keep, self.context_tokens - 1) if self.shifts else None)

    def left(self, held_tokens: int, output_tokens: int) -> int:
        """How many tokens the answer may have beside those, before any other has to go. held_tokens: in the context."""
        room = self.context_tokens - held_tokens
        return room if self.output_tokens is None else min(room, self.output_tokens - output_tokens)


def limits_of(options: pb.Options, session_context_tokens: int, *, shifts: bool = False) -> AnswerLimits:
    """The request's own limits, never above the session's. As in Ollama, num_predict limits when it is above 0, and
    a num_ctx that is too small, or none, counts as the smallest; 0 is not set."""
    context = session_context_tokens
    if options.HasField("num_ctx") and options.num_ctx != 0:
        context = min(context, max(options.num_ctx, SMALLEST_CONTEXT_TOKENS))
    output = options.num_predict if options.num_predict > 0 else None
    if shifts:
        output = min(output or MOST_CONTEXTS * context, MOST_CONTEXTS * context)
    keep = options.num_keep if options.HasField("num_keep") else DEFAULT_KEEP_TOKENS
    return AnswerLimits(context, output, keep, shifts)


def refuse_unsupported(request: pb.GenerateRequest) -> None:
    """Raises InvalidInput for what a session can't do, before anything is computed."""
    if (size_bytes := request.ByteSize()) > MOST_REQUEST_BYTES:
        raise InvalidInput(too_large(size_bytes))
    if request.images:
        raise InvalidInput("this session's model reads no images: send text only")
    if request.top_logprobs > MOST_TOP:
        raise InvalidInput(f"top_logprobs must be between 0 and {MOST_TOP}")


def check_replay(replay: ring_pb2.Replay, limits: AnswerLimits, vocabulary_size: int) -> None:
    """Raises InvalidInput for an answer so far that no run of this session can have told."""
    if not replay.beginning.prompt:
        raise InvalidInput("an answer so far without the prompt that it began with")
    ids = (*replay.beginning.prompt, *replay.answer)
    most_answer = (limits.output_tokens or 0) if limits.shifts else limits.context_tokens
    is_too_long = len(replay.beginning.prompt) > limits.context_tokens or len(replay.answer) > most_answer
    if is_too_long or (len(ids) > limits.context_tokens and not limits.shifts):
        raise InvalidInput(f"an answer of {len(ids)} tokens with its prompt, in a context of {limits.context_tokens}")
    if not all(0.0 <= seconds < math.inf for seconds in (replay.prompt_s, replay.output_s)):
        raise InvalidInput("an answer so far took a time that is none")
    scores = replay.scores
    if len(scores) > len(replay.answer) or any(len(one.top) != len(one.top_logprobs) for one in scores):
        raise InvalidInput(
            f"an answer of {len(replay.answer)} tokens so far, with log probabilities that are not theirs"
        )
    if max(ids) >= vocabulary_size:
        raise InvalidInput(f"token {max(ids)} in an answer so far, of a model that has {vocabulary_size}")


def too_large(size_bytes: int) -> str:
    """Why a request is refused unread."""
    most = f"{MOST_REQUEST_BYTES / 1e6:.1f} MB"
    return f"this prompt has {size_bytes / 1e6:.1f} MB with all that comes with it, over {most}: shorten it"


def given_options(options: pb.Options) -> dict[str, Any]:
    """The options that the request sets, by Ollama's names."""
    return {field.name: value for field, value in options.ListFields()}
