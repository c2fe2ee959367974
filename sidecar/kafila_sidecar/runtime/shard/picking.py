"""What the head does with a state that came back from the last stage: it picks a token, and sends it on its way."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.runtime.text.sample import Sampler

if TYPE_CHECKING:
    import mlx.core as mx


@dataclass(frozen=True, slots=True)
class Pick:
    """state: after the last block. goes_on: the token is followed by another one, unless it ends the answer.

    allowed: a bit for each id that may be picked, the lowest first; None: all of them. top: how many of the likeliest
    tokens are to be told with the picked one's log probability; None: neither.
    """

    sequence: int
    state: HiddenState
    sampler: Sampler
    goes_on: bool
    allowed: bytes | None = None
    top: int | None = None


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A picked token's log probability, and ids and log probabilities of the likeliest ones, the likeliest first: of
    the model's own distribution, before all that picking goes by, as stock Ollama reports it."""

    logprob: float
    top: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True, slots=True)
class Picked:
    """A token, and its own state after the head's blocks where the answer goes on; its score where that is wanted."""

    token: int
    state: HiddenState | None
    score: TokenScore | None = None


@dataclass(frozen=True, slots=True)
class Guessed:
    """state: after the last block, of a token and the guesses that followed it. least_lead: by how much the most likely
    token has to lead, where the state may differ from that of single steps by rounding."""

    sequence: int
    state: HiddenState
    sampler: Sampler
    guesses: Sequence[int]
    least_lead: float = 0.0


@dataclass(frozen=True, slots=True)
class CameTrue:
    """The tokens that the sampler picked: guesses that were right, and the one after them, unless `is_undecided`: then
    that one has to be picked from the state of a single step."""

    tokens: Sequence[int]
    is_undecided: bool = False


class Scores:
    """A pick's log probabilities: lazy, until its `arrays` are evaluated with the rest of the run. MLX thread only.

    They are of the logits as the model made them, before temperature, penalties, filters and formats.
    """

    def __init__(self, logits: "mx.array", token: "mx.array", top: int) -> None:
        """logits: [V], -inf where an id is no token. token: of one id. top: how many of the likeliest are wanted."""
        import mlx.core as mx

        wide = logits.astype(mx.float32)
        logprobs = wide - mx.logsumexp(wide)
        self._picked = logprobs[token]
        count = min(top, logprobs.size)
        likeliest = mx.argpartition(-logprobs, kth=count - 1)[:count] if count else mx.zeros((0,), mx.int32)
        self._ids = likeliest[mx.argsort(-logprobs[likeliest])] if count else likeliest
        self._top = logprobs[self._ids] if count else mx.zeros((0,))

    @property
    def arrays(self) -> "tuple[mx.array, ...]":
        return self._picked, self._ids, self._top

    def told(self) -> TokenScore:
        """What they come to."""
        ids: Any = self._ids.tolist()
        top: Any = self._top.tolist()
        picked: Any = self._picked.item()
        return TokenScore(picked, tuple(zip(ids, top, strict=True)))
