"""Log probabilities of picked tokens, as stock Ollama reports them: of the logits as the model made them, before
temperature, penalties, filters and constraints. MLX thread only."""

from typing import Any

import mlx.core as mx

from kafila_sidecar.runtime.shard.picking import TokenScore


class Scores:
    """Those of one pick: lazy, until its `arrays` are evaluated with the rest of the run.

    logits: [V], -inf where an id is no token. token: of one id. top: how many of the likeliest are wanted.
    """

    def __init__(self, logits: mx.array, token: mx.array, top: int) -> None:
        wide = logits.astype(mx.float32)
        logprobs = wide - mx.logsumexp(wide)
        self._picked = logprobs[token]
        count = min(top, logprobs.size)
        likeliest = mx.argpartition(-logprobs, kth=count - 1)[:count] if count else mx.zeros((0,), mx.int32)
        self._ids = likeliest[mx.argsort(-logprobs[likeliest])] if count else likeliest
        self._top = logprobs[self._ids] if count else mx.zeros((0,))

    @property
    def arrays(self) -> tuple[mx.array, ...]:
        return self._picked, self._ids, self._top

    def told(self) -> TokenScore:
        """What they come to."""
        ids: Any = self._ids.tolist()
        top: Any = self._top.tolist()
        picked: Any = self._picked.item()
        return TokenScore(picked, tuple(zip(ids, top, strict=True)))
