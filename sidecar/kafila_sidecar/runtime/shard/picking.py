"""What the head does with a state that came back from the last stage: it picks a token, and sends it on its way."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kafila_sidecar.runtime.handed_over import HandedOver
from kafila_sidecar.runtime.shard.finite import (
    WHY,
    NotFinite,
    TokenLayout,
    flaw_of_logits,
    made_well,
    or_not_finite,
)
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.runtime.text.sample import Sampler, choose_each

if TYPE_CHECKING:
    import mlx.core as mx

    from kafila_sidecar.runtime.shard.carried import Carried, Packing
    from kafila_sidecar.runtime.shard.kv import SequenceCache, Sequences
    from kafila_sidecar.runtime.shard.partial import PartialModel


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


@dataclass(frozen=True, slots=True)
class Picking:
    """What `TokenPicker.pick` is about to evaluate: of all rows their scores [B, V], tokens [B], and whether they have
    a choice [B]; of the rows that go on their caches and, as the only one of `left`, their states as they lie in a
    payload."""

    logits: "mx.array"
    tokens: "mx.array"
    is_choice: "mx.array"
    caches: "Sequence[SequenceCache]" = ()
    left: "Sequence[mx.array]" = ()
    scores: "Sequence[Scores | None]" = ()
    dtype: str = ""

    @property
    def arrays(self) -> "list[mx.array]":
        """All that is wanted of it."""
        return [self.tokens, self.is_choice, *self.left, *(part for one in self.scores if one for part in one.arrays)]


class BegunPick:
    """A pick that was built, and whose sequences have taken in their tokens. layout: of the states that leave."""

    def __init__(self, rows: Sequence[Pick], graph: Picking, layout: TokenLayout) -> None:
        from kafila_sidecar.runtime.shard.arrays import as_raw, dtype_name

        self._rows, self._graph, self._layout = rows, graph, layout
        self._positions = [cache.position for cache in graph.caches]
        self._logits, self._dtype = as_raw(graph.logits), dtype_name(graph.logits)
        for cache in graph.caches:
            cache.advance(1)

    def hand_over(self) -> HandedOver[list[Picked | NotFinite]]:
        """Gives it to the device."""
        import mlx.core as mx

        mx.async_eval(*self._graph.arrays, self._logits)  # type: ignore[no-untyped-call]
        return HandedOver(self.told)

    def told(self) -> list[Picked | NotFinite]:
        """What comes of it, evaluated; in a row's place why there is nothing."""
        import mlx.core as mx

        mx.eval(self._graph.arrays)
        choices: Any = self._graph.is_choice.tolist()
        tokens: Any = self._graph.tokens.tolist()
        states = self._states()
        return [
            self._picked(at, tokens[at], states[at]) if is_choice else self._no_choice(at)
            for at, is_choice in enumerate(choices)
        ]

    def _states(self) -> list[HiddenState | None]:
        """Of the rows that go on."""
        from kafila_sidecar.runtime.shard.arrays import parted_rows

        left = iter([one for raw in self._graph.left for one in parted_rows(raw, self._graph.dtype, self._positions)])
        return [next(left) if row.goes_on else None for row in self._rows]

    def _no_choice(self, at: int) -> NotFinite:
        payload = memoryview(self._logits).cast("B")  # type: ignore[arg-type]
        size = len(payload) // len(self._rows)
        return no_choice(payload[at * size : (at + 1) * size], self._dtype)

    def _picked(self, at: int, token: int, state: HiddenState | None) -> Picked | NotFinite:
        self._rows[at].sampler.take(token)
        made = None if state is None else or_not_finite(partial(made_well, state, self._layout))
        score = self._graph.scores[at]
        return made if isinstance(made, NotFinite) else Picked(token, made, score.told() if score else None)


class TokenPicker:
    """Picks tokens for the sequences of the head's shard. exit, last: as of that. MLX thread only."""

    def __init__(self, *, passage: "PartialModel", sequences: "Sequences", exit: "Packing", last: "Packing") -> None:
        self._passage = passage
        self._sequences = sequences
        self._exit, self._last = exit, last

    def logits(self, rows: "Sequence[Carried]") -> "mx.array":
        """[B, V] after the last token of each, lazy."""
        from kafila_sidecar.runtime.shard.carried import stacked

        last = [row.last_token() for row in rows]
        logits: mx.array = self._passage.of_head(last[0] if len(last) == 1 else stacked(last))[:, -1]
        return logits

    def begin(self, rows: Sequence[Pick]) -> BegunPick:
        """What picks the token that follows each row's state, and runs it through our blocks where the answer goes on.

        Raises: NotFound for a sequence that was released or never began.
        """
        from kafila_sidecar.runtime.shard.arrays import unpack
        from kafila_sidecar.runtime.shard.carried import stacked

        graph = self._picking_ahead(rows)
        if graph is None:
            last = [self._last.parted(unpack(row.state)).last_token() for row in rows]
            graph = self._picking(rows, last[0] if len(last) == 1 else stacked(last))
        return BegunPick(rows, graph, self._exit.layout)

    def build(self, rows: Sequence[Pick]) -> None:
        """Builds what `begin` does with these sequences' states once they are back, if they are like the rows'. Nothing
        where one of them has its token already: its sampler may not know it yet, and would pick the next one as if
        there were none."""
        from kafila_sidecar.runtime.shard.ahead import Ahead, LateInput

        if caches := self._sequences.standing(_at(rows)):
            late = LateInput(rows[0].state.dtype, (len(rows), 1, self._last.layout.width))
            Ahead(caches, late, lambda states: self._picking(rows, self._last.parted(states)), _asks(rows))

    def check(self, row: Guessed) -> CameTrue:
        """The tokens that the row's sampler picks one after another, as long as they are those that were guessed.

        Raises: NotFound for a sequence that was released or never began; NotFinite for scores without a choice.
        """
        import mlx.core as mx

        from kafila_sidecar.runtime.shard.arrays import unpack

        self._sequences.check(row.sequence)
        logits = self._passage.of_head(self._last.parted(unpack(row.state)))[0]
        before = [row.guesses[:at] for at in range(row.state.tokens)]
        tokens = mx.stack([row.sampler.choose(logits[at], after) for at, after in enumerate(before)])
        is_choice = may_choose(logits)
        leads = mx.full(tokens.shape, mx.inf)
        if row.least_lead:
            leads = mx.stack([row.sampler.lead(logits[at], after) for at, after in enumerate(before)])
        mx.eval(tokens, is_choice, leads)
        return self._as_far_as_right(row, logits, tokens.tolist(), is_choice.tolist(), leads.tolist())

    def _as_far_as_right(self, row: Guessed, logits: "mx.array", tokens: Any, choices: Any, leads: Any) -> CameTrue:
        from kafila_sidecar.runtime.shard.arrays import raw_of

        kept: list[int] = []
        for at, token in enumerate(tokens):
            if not choices[at]:
                raise no_choice(*raw_of(logits[at]))
            if leads[at] < row.least_lead:
                return CameTrue(kept, is_undecided=True)
            row.sampler.take(token)
            kept.append(token)
            if at == len(row.guesses) or token != row.guesses[at]:
                break
        return CameTrue(kept)

    def _picking(self, rows: Sequence[Pick], states: "Carried") -> "Picking":
        """The rows' tokens, and where they go on the tokens' states, lazy. states: of their last tokens, [B, 1, …]."""
        import mlx.core as mx

        from kafila_sidecar.runtime.shard.arrays import as_raw, dtype_name
        from kafila_sidecar.runtime.shard.rows import joined_slots

        for row in rows:
            self._sequences.check(row.sequence)
        logits = self._passage.of_head(states)[:, -1]
        tokens = choose_each([row.sampler for row in rows], logits, [row.allowed for row in rows])
        scores = [
            None if row.top is None else Scores(row.sampler.of_tokens(logits[at]), tokens[at], row.top)
            for at, row in enumerate(rows)
        ]
        is_choice = may_choose(logits)
        going = [at for at, row in enumerate(rows) if row.goes_on]
        if not going:
            return Picking(logits, tokens, is_choice, scores=scores)
        caches = [self._sequences.next(rows[at].sequence) for at in going]
        ids = tokens if len(going) == len(rows) else tokens[mx.array(going)]
        ids = ids[:, None].astype(mx.int32)
        hidden = self._exit.joined(self._passage.of_tokens(ids, joined_slots(caches)))
        return Picking(logits, tokens, is_choice, caches, [as_raw(hidden)], scores, dtype_name(hidden))

    def _picking_ahead(self, rows: Sequence[Pick]) -> "Picking | None":
        ahead = self._sequences.ahead(_at(rows), _asks(rows))
        return None if ahead is None else ahead.given([row.state for row in rows])


def may_choose(logits: "mx.array") -> "mx.array":
    """Whether there is a choice among scores [..., V], lazy."""
    import mlx.core as mx

    return mx.isfinite(mx.max(logits, axis=-1)) & ~mx.any(mx.isnan(logits), axis=-1)


def no_choice(payload: memoryview, dtype: str) -> NotFinite:
    """What is said of one row of scores without one."""
    return NotFinite(f"the model's scores for the next token hold {flaw_of_logits(payload, dtype)}: {WHY}")


def _at(rows: Sequence[Pick]) -> list[tuple[int, int]]:
    """The sequences, and where each one's token belongs."""
    return [(row.sequence, row.state.position + row.state.tokens) for row in rows]


def _asks(rows: Sequence[Pick]) -> object:
    """What tells apart for which picks one is built."""
    return [(row.sampler, row.goes_on, row.state.dtype, row.state.tokens, row.allowed, row.top) for row in rows]
