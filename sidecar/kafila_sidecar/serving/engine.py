"""The head: tokenize → admit → embed and run its blocks → ring → norm, unembed, sample → detokenize.

Each request is one coroutine that reads top to bottom; requests interleave on the MLX thread and in the ring, so
several sequences fill it. The engine knows no socket, and the ring no model.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count
from typing import Any

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput, KafilaError
from kafila_sidecar.runtime.footprint import PREFILL_CHUNK_TOKENS
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.runtime.text.decoding import TextStream
from kafila_sidecar.runtime.text.options import resolve
from kafila_sidecar.runtime.text.sample import Sampler
from kafila_sidecar.runtime.text.stop import StopStrings
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from kafila_sidecar.serving.prompt import ChatPrompt, Framer, PlainPrompt, parse_prompt
from kafila_sidecar.serving.request import (
    RequestLimits,
    chunks,
    given_options,
    limits_of,
    now,
    refuse_unsupported,
)
from kafila_sidecar.serving.ring import Returned, Ring
from kafila_sidecar.serving.slots import Slots
from kafila_sidecar.serving.trace import Circuit, RequestTrace
from kafila_sidecar.session.coordination.effects import Proposal

log = logging.getLogger(__name__)

DEFAULT_KEEP_TOKENS = 4  # Ollama's num_keep


@dataclass(slots=True)
class Generation:
    """What the head keeps of one running request."""

    number: int
    prompt: Sequence[int]
    limits: RequestLimits
    sampler: Sampler
    text: TextStream
    stops: StopStrings
    framer: Framer
    trace: RequestTrace
    ended: str = "cancelled"

    def take(self, token: int) -> str:
        """A token's text, as far as it is certain and no stop string."""
        return self.stops.feed(self.text.add(token))

    def rest(self) -> str:
        """What was held back, at the end."""
        return self.stops.feed(self.text.finish()) + self.stops.finish()

    @property
    def is_over(self) -> bool:
        """A stop string is complete, or the answer may not grow any more."""
        output = self.trace.output_tokens
        return self.stops.stopped or self.limits.reason_to_stop(len(self.prompt) + output, output)


class Engine:
    """Answers requests of one epoch on the head."""

    def __init__(
        self,
        *,
        shard: Shard,
        tokenizer: Tokenizer,
        mlx: MlxThread,
        ring: Ring,
        proposal: Proposal,
        ended: Callable[[RequestTrace, str], None],
    ) -> None:
        self._shard = shard
        self._tokenizer = tokenizer
        self._mlx = mlx
        self._ring = ring
        self._proposal = proposal
        self._ended = ended
        self._context_tokens = int(proposal.problem["context_tokens"])
        self._slots = Slots(int(proposal.problem["concurrency"]))
        self._numbers = count(1)
        self._text_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="text")
        self._releases: set[asyncio.Task[None]] = set()

    async def generate(self, request: pb.GenerateRequest) -> AsyncGenerator[pb.GenerateReply, None]:
        """Streams one answer; the last reply has `done`. Closing the iterator frees the sequence on every stage.

        Raises:
            InvalidInput: options or prompt make no sense, or the prompt is too long and may not be cut.
            Exhausted: too many requests wait.
            Unavailable: a member was lost.
            TimedOut: a stage did not answer in time.
        """
        generation = await self._prepared(request)
        async with self._slots.take():
            generation.trace.admitted(now())
            try:
                async with aclosing(self._run(generation)) as texts:
                    async for text in texts:
                        if text:
                            yield pb.GenerateReply(text=generation.framer.content(text))
                yield _done(generation)
            except Exception as error:
                generation.ended = error.code if isinstance(error, KafilaError) else KafilaError.code
                raise
            finally:
                await self._released(generation)

    async def close(self) -> None:
        """Waits for the last releases; running requests were failed through the ring, and fail at their next step."""
        await asyncio.gather(*self._releases, return_exceptions=True)
        self._text_thread.shutdown(wait=False)

    async def _prepared(self, request: pb.GenerateRequest) -> Generation:
        """Everything that may be refused, before the request waits for its turn."""
        refuse_unsupported(request)
        began, number = now(), next(self._numbers)
        limits = limits_of(request.options, self._context_tokens)
        options = resolve(given_options(request.options), self._tokenizer.generation_config)
        prompt = parse_prompt(request.prompt)
        tokens = await self._encode(prompt, request, limits)
        is_chat = isinstance(prompt, ChatPrompt)
        return Generation(
            number=number,
            prompt=tokens,
            limits=limits,
            sampler=await self._on_shard(Sampler, options, tokens, self._tokenizer.size, self._tokenizer.gaps),
            text=self._tokenizer.stream(after_raw_prompt=not is_chat),
            stops=StopStrings(request.options.stop),
            framer=Framer(framed=is_chat),
            trace=RequestTrace(self._proposal, request=str(number), prompt_tokens=len(tokens), began=began),
        )

    async def _run(self, generation: Generation) -> AsyncGenerator[str, None]:
        """The answer's text, token by token; it may be empty."""
        token = await self._prefill(generation)
        while token not in self._tokenizer.eos_ids:
            text = generation.take(token)
            if generation.is_over:
                yield text
                break
            step = asyncio.ensure_future(self._decode(generation, token))
            try:
                yield text  # is on its way while the ring goes on
                token = await step
            finally:
                _drop(step)
        yield generation.rest()
        is_cut = token not in self._tokenizer.eos_ids and not generation.stops.stopped
        generation.ended = "length" if is_cut else "stop"

    async def _prefill(self, generation: Generation) -> int:
        """The prompt through the ring in chunks; only the last one's hidden state comes back."""
        *early, last = chunks(generation.prompt, PREFILL_CHUNK_TOKENS)
        for chunk in early:
            state, _, _ = await self._timed(self._shard.embed_and_blocks, generation.number, chunk)
            await self._ring.send(generation.number, state, wants_output=False)
            generation.trace.absorbed(state.nbytes)
        return await self._circuit(generation, last)

    async def _decode(self, generation: Generation, token: int) -> int:
        return await self._circuit(generation, (token,))

    async def _circuit(self, generation: Generation, tokens: Sequence[int]) -> int:
        """Tokens once round the ring; the next token."""
        began = now()
        state, embed_s, embed_stay_s = await self._timed(self._shard.embed_and_blocks, generation.number, tokens)
        back = await self._ring.go_round(generation.number, state, is_prompt=generation.trace.output_tokens == 0)
        token: int
        token, head_s, head_stay_s = await self._timed(
            self._shard.next_token, generation.number, back.state, generation.sampler
        )
        circuit = _circuit(state, back, embed_s + head_s, embed_stay_s + head_stay_s, now() - began)
        generation.trace.token(circuit, now())
        return token

    async def _encode(
        self, prompt: ChatPrompt | PlainPrompt, request: pb.GenerateRequest, limits: RequestLimits
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

        self._ring.check()
        tokens = await asyncio.get_running_loop().run_in_executor(self._text_thread, encode)
        if not tokens:
            raise InvalidInput("the prompt is empty: there is nothing to answer")
        return tokens

    async def _released(self, generation: Generation) -> None:
        """A client that goes away cancels its request, and may do so again while that is being cleared away: the
        release is a task of the engine's own."""
        release = asyncio.create_task(self._release(generation), name=f"release {generation.number}")
        self._releases.add(release)
        release.add_done_callback(self._releases.discard)
        await asyncio.shield(release)

    async def _release(self, generation: Generation) -> None:
        await self._mlx.run(self._shard.release, generation.number)
        await self._ring.release(generation.number)
        self._ended(generation.trace, generation.ended)

    async def _on_shard(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The call's result on the MLX thread; once the epoch has ended, its fault: the shard is about to be freed."""
        self._ring.check()
        return await self._mlx.run(call, *arguments)

    async def _timed(self, call: Callable[..., Any], *arguments: Any) -> tuple[Any, float, float]:
        """The call's result on the MLX thread, its own seconds, and those with the wait for the thread."""
        asked = now()

        def timed() -> tuple[Any, float]:
            began = now()
            return call(*arguments), now() - began

        result, compute_s = await self._on_shard(timed)
        return result, compute_s, now() - asked


def _circuit(sent: HiddenState, back: Returned, compute_s: float, stay_s: float, circuit_s: float) -> Circuit:
    return Circuit(
        compute_s=(compute_s, *(stage.compute_s for stage in back.stages)),
        residence_s=(stay_s, *(stage.residence_s for stage in back.stages)),
        circuit_s=circuit_s,
        sent_bytes=sent.nbytes,
        received_bytes=back.state.nbytes,
    )


def _drop(step: "asyncio.Task[int]") -> None:
    """Nobody waits for a step any more, nor for the error that it may have ended with."""
    step.cancel()
    if step.done() and not step.cancelled():
        step.exception()


def _done(generation: Generation) -> pb.GenerateReply:
    reasons = {"stop": pb.DONE_REASON_STOP, "length": pb.DONE_REASON_LENGTH}
    return pb.GenerateReply(
        done=True,
        done_reason=reasons[generation.ended],
        prompt_tokens=len(generation.prompt),
        prompt_s=generation.trace.prompt_s,
        output_tokens=generation.trace.output_tokens,
        output_s=generation.trace.output_s,
    )
