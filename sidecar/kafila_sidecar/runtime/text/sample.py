"""Picks the next token of one sequence from its logits, with mlx-lm's filters and penalties in Ollama's order.

Importable and made without MLX; `pick` is for the MLX thread only.
"""

import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kafila_sidecar.runtime.text.options import SamplingOptions

if TYPE_CHECKING:
    import mlx.core as mx

SEED_BITS = 63
_STRIDE = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: between the keys of one seed, so that two seeds share few
COLDEST = 1e-6  # below it the quotients of logits leave float32; the most likely token is what they tend to


class Sampler:
    """One request's way of picking tokens.

    Its random numbers are a function of its seed, of how many tokens were picked and of the ids that it draws among:
    whoever knows the seed, the prompt and the answer so far picks as if it had picked all of it.
    """

    def __init__(
        self,
        options: SamplingOptions,
        prompt: Iterable[int] = (),
        size: int | None = None,
        gaps: Sequence[int] = (),
    ) -> None:
        """`prompt`: the tokens that the penalties count as seen before the first pick. Ids from `size` on, and those in
        `gaps`, are no tokens and never picked: heads are often wider than their tokenizer."""
        self._options = options
        self._size = size
        self._gaps = gaps
        self._mask: mx.array | None = None  # [V], made with the first logits
        self._seen = list(prompt)
        self._picked = 0
        self.seed = secrets.randbits(SEED_BITS) if options.seed is None else options.seed % (1 << SEED_BITS)

    def pick(self, logits: "mx.array") -> int:
        """The next token after logits [V]; the penalties count it as seen from then on."""
        token = int(self.choose(logits))
        self.take(token)
        return token

    def choose(
        self, logits: "mx.array", after: "Sequence[int | mx.array]" = (), allowed: bytes | None = None
    ) -> "mx.array":
        """The next token after logits [V] as an array of one id, lazy; `take` has to follow before the next one. after:
        tokens that are taken for picked already, and may turn out not to be, or are not known yet: arrays of one id.
        allowed: a bit for each id, the lowest
        first; None: all.

        The most likely one is mlx-lm's: of log-probabilities in the logits' own element type, in which 16 bits make
        some of them equal that were not, and the first of equals counts.
        """
        import mlx.core as mx

        logits = self._penalised(logits, after)
        if not self.is_greedy:
            return self._draw(_only(self.of_tokens(logits), allowed), self._picked + len(after))
        return mx.argmax(_only(self.of_tokens(logits - mx.logsumexp(logits, keepdims=True)), allowed))

    @property
    def takes_likeliest(self) -> bool:
        """Whether it picks the most likely token, whatever was picked before."""
        options = self._options
        penalties = (options.repeat_penalty - 1, options.presence_penalty, options.frequency_penalty)
        return self.is_greedy and not any(penalties)

    def lead(self, logits: "mx.array", after: Sequence[int] = ()) -> "mx.array":
        """By how much the most likely token leads, lazy; `after` as in `choose`."""
        import mlx.core as mx

        best = mx.topk(self.of_tokens(self._penalised(logits, after)).astype(mx.float32), 2)
        return mx.max(best) - mx.min(best)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is picked."""
        return self._options.temperature < COLDEST

    def take(self, token: int) -> None:
        """A token that was picked, here or before."""
        self._seen.append(token)
        self._picked += 1

    def of_tokens(self, logits: "mx.array") -> "mx.array":
        """Logits [V], or [B, V], as far as they are those of tokens; gaps among them are -inf."""
        import mlx.core as mx

        scores = logits[..., : self._size]
        if not self._gaps:
            return scores
        if self._mask is None:
            size = scores.shape[-1]
            gaps = mx.array([number for number in self._gaps if number < size], dtype=mx.int32)
            none = mx.zeros((size,), scores.dtype)
            self._mask = mx.put_along_axis(none, gaps, mx.array(-mx.inf, scores.dtype), axis=-1)
        return scores + self._mask

    def is_of_tokens_of(self, other: "Sampler") -> bool:
        """Whether the same ids are tokens for both."""
        return (self._size, self._gaps) == (other._size, other._gaps)

    def _penalised(self, logits: "mx.array", after: "Sequence[int | mx.array]") -> "mx.array":
        """Logits [V] less what the last `repeat_last_n` tokens cost, `after` the last ones of them."""
        from mlx_lm.sample_utils import make_logits_processors

        options = self._options
        length = len(self._seen) + len(after)
        reach = length if options.repeat_last_n < 0 else options.repeat_last_n
        window = [*self._seen[max(0, length - reach) :], *after[max(0, len(after) - reach) :]]
        penalties = make_logits_processors(
            repetition_penalty=None if options.repeat_penalty == 1 else options.repeat_penalty,
            repetition_context_size=len(window),
            presence_penalty=options.presence_penalty,
            presence_context_size=len(window),
            frequency_penalty=options.frequency_penalty,
            frequency_context_size=len(window),
        )
        if not window or not penalties:
            return logits
        rows, seen = logits[None], _ids(window)
        for penalise in penalties:
            rows = penalise(seen, rows)
        return rows[0]

    def _draw(self, scores: "mx.array", picked: int) -> "mx.array":
        """A random token, after so many that were picked: top_k, temperature, top_p, min_p, one after another."""
        import mlx.core as mx
        from mlx_lm.sample_utils import apply_min_p, apply_top_p

        options = self._options
        ids = None
        if 0 < options.top_k < scores.size:
            ids = mx.argpartition(-scores, kth=options.top_k - 1)[: options.top_k]
            scores = scores[ids]
        scores = scores.astype(mx.float32) / options.temperature
        scores = (scores - mx.logsumexp(scores))[None]
        if 0 < options.top_p < 1:
            scores = apply_top_p(scores, options.top_p)
        if options.min_p > 0:
            scores = apply_min_p(scores, options.min_p)
        key = mx.random.key((self.seed + _STRIDE * (picked + 1)) % (1 << 64))
        return mx.random.categorical(scores[0], key=key) if ids is None else ids[mx.argmax(scores[0] + _luck(key, ids))]


def choose_each(samplers: Sequence[Sampler], logits: "mx.array", allowed: Sequence[bytes | None]) -> "mx.array":
    """The next token of each row of logits [B, V], lazy, as its sampler's `choose` gives it: all at once where each
    takes the most likely one of the same tokens."""
    import mlx.core as mx

    first = samplers[0]
    if any(allowed) or not all(one.takes_likeliest and one.is_of_tokens_of(first) for one in samplers):
        each = zip(samplers, allowed, strict=True)
        return mx.stack([one.choose(logits[row], allowed=bits) for row, (one, bits) in enumerate(each)])
    scores = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return mx.argmax(first.of_tokens(scores), axis=-1)


def _luck(key: "mx.array", ids: "mx.array") -> "mx.array":
    """Gumbel noise of each id: whoever has the most of score and noise is drawn as often as its score says.

    It goes by key and id alone. In what order the likeliest ids come, and which is the last of them, hangs on the last
    bits of all scores; noise that went by their places would make each rounding a seed of its own. The key is mixed
    first: those of neighbouring seeds differ in as few bits as neighbouring ids.
    """
    import mlx.core as mx

    key = mx.random.split(key)[0]
    keys = mx.stack([mx.broadcast_to(key[0], ids.shape), key[1] ^ ids.astype(mx.uint32)], axis=-1)
    noise: mx.array = mx.vmap(lambda one: mx.random.gumbel(key=one))(keys)
    return noise


def _ids(tokens: "Sequence[int | mx.array]") -> "mx.array":
    """One array of all of them."""
    import mlx.core as mx

    if all(isinstance(token, int) for token in tokens):
        return mx.array(list(tokens))
    known = [token for token in tokens if isinstance(token, int)]
    later = [token.reshape(1).astype(mx.int32) for token in tokens if not isinstance(token, int)]
    return mx.concatenate([mx.array(known, dtype=mx.int32), *later])


def _only(scores: "mx.array", allowed: bytes | None) -> "mx.array":
    """Scores [V] with -inf where `allowed` has no bit."""
    import mlx.core as mx
    import numpy as np

    if allowed is None:
        return scores
    bits = np.unpackbits(np.frombuffer(allowed, np.uint8), count=scores.size, bitorder="little")
    return mx.where(mx.array(bits.astype(np.bool_)), scores, mx.array(-mx.inf, scores.dtype))
