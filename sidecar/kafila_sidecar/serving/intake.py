"""From a request to token ids, a sampler and limits: everything that may be refused, before anything is computed."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.text.decoding import TextStream
from kafila_sidecar.runtime.text.options import resolve
from kafila_sidecar.runtime.text.sample import Sampler
from kafila_sidecar.runtime.text.stop import StopStrings
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from kafila_sidecar.serving.limits import AnswerLimits, check_replay, given_options, limits_of, refuse_unsupported
from kafila_sidecar.serving.prompt import ChatPrompt, Framer, PlainPrompt, parse_prompt

DEFAULT_KEEP_TOKENS = 4  # Ollama's num_keep


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that may be answered. What the sampler, the text and the stop strings have seen is kept in them.

    request: as it was asked. prompt: its ids. ends: the ids that end an answer. began: seconds on the head's clock.
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


class Intake:
    """Prepares requests for one checkpoint; long conversations are rendered on a thread of their own."""

    def __init__(self, *, tokenizer: Tokenizer, context_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._context_tokens = context_tokens
        self._text_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="text")

    async def prepare(self, request: pb.GenerateRequest, replay: ring_pb2.Replay) -> PreparedRequest:
        """The request, ready to be answered; with the prompt's ids and the seed of `replay`, if it has begun before.

        Raises:
            InvalidInput: options, prompt or replay make no sense, or the prompt is too long and may not be cut.
        """
        refuse_unsupported(request)
        began = monotonic()
        limits = limits_of(request.options, self._context_tokens)
        options = resolve(given_options(request.options), self._tokenizer.generation_config)
        prompt = parse_prompt(request.prompt)
        if replay.beginning.prompt:
            check_replay(replay, limits, self._tokenizer.size)
            tokens: Sequence[int] = list(replay.beginning.prompt)
            options = replace(options, seed=replay.beginning.seed)
        else:
            tokens = await self._encode(prompt, request, limits)
        is_chat = isinstance(prompt, ChatPrompt)
        return PreparedRequest(
            request=request,
            prompt=tokens,
            limits=limits,
            sampler=Sampler(options, tokens, self._tokenizer.size, self._tokenizer.gaps),
            text=self._tokenizer.stream(after_raw_prompt=not is_chat),
            stops=StopStrings(request.options.stop),
            framer=Framer(framed=is_chat),
            ends=self._tokenizer.eos_ids,
            began=began,
        )

    def close(self) -> None:
        """No more requests."""
        self._text_thread.shutdown(wait=False)

    async def _encode(
        self, prompt: ChatPrompt | PlainPrompt, request: pb.GenerateRequest, limits: AnswerLimits
    ) -> Sequence[int]:
        """The prompt's ids, at least one, with room for at least one token of answer. One that has to be cut leaves a
        quarter of the context, or as much as is asked for: an answer of one token would be none."""
        keep = request.options.num_keep if request.options.HasField("num_keep") else DEFAULT_KEEP_TOKENS
        quarter, wanted = max(1, limits.context_tokens // 4), request.options.num_predict
        room = min(wanted, quarter) if wanted > 0 else quarter
        fit: dict[str, Any] = {
            "limit": limits.context_tokens - 1,
            "keep": keep,
            "truncate": request.truncate,
            "cut_to": limits.context_tokens - room,
        }

        def encode() -> Sequence[int]:
            if isinstance(prompt, ChatPrompt):
                return self._tokenizer.fit(prompt.messages, prompt.tools, prompt.think, **fit)
            return self._tokenizer.fit_raw(self._tokenizer.encode(prompt.text), **fit)

        tokens = await asyncio.get_running_loop().run_in_executor(self._text_thread, encode)
        if not tokens:
            raise InvalidInput("the prompt is empty: there is nothing to answer")
        return tokens
