"""Tokens and received states through a stage's blocks, which takes their caches on. MLX thread only."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import mlx.core as mx

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.handed_over import HandedOver
from kafila_sidecar.runtime.shard.ahead import Ahead, LateInput
from kafila_sidecar.runtime.shard.arrays import pack, pack_rows, unpack, unpack_rows
from kafila_sidecar.runtime.shard.begun import BegunRun
from kafila_sidecar.runtime.shard.carried import Carried, Packing
from kafila_sidecar.runtime.shard.finite import NotFinite, check_state, made_well, or_not_finite
from kafila_sidecar.runtime.shard.kv import SequenceCache, Sequences
from kafila_sidecar.runtime.shard.partial import PartialModel
from kafila_sidecar.runtime.shard.rows import joined_slots
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.runtime.shard.steps import LearntSteps

LARGE_CHUNK_TOKENS = 32  # from here on a chunk's temporaries are worth giving back at once


class BlockRunner:
    """Runs the blocks of one shard. entry, exit: how what comes in, and what goes out, lies on the wire.

    steps: how those with several tokens go. takes_rows: whether several sequences can be in one run.
    """

    def __init__(
        self,
        *,
        passage: PartialModel,
        sequences: Sequences,
        entry: Packing,
        exit: Packing,
        steps: LearntSteps,
        takes_rows: bool,
    ) -> None:
        self._passage = passage
        self._sequences = sequences
        self._entry, self._exit = entry, exit
        self._incoming = entry.layout
        self._steps = steps
        self._takes_rows = takes_rows

    def embed_and_blocks(self, sequence: int, tokens: Sequence[int]) -> HiddenState:
        """The next tokens of a sequence, embedded and run through our blocks; the head's first step."""
        cache = self._sequences.at(sequence, self._sequences.position(sequence))
        ids, again = cache.given(mx.array([list(tokens)], dtype=mx.int32))
        return self._leave(self._passage.of_tokens(ids, cache.slots), cache, again=again)

    def embed_rows(self, rows: Sequence[tuple[int, Sequence[int]]]) -> list[HiddenState]:
        """The next tokens of several sequences, equally many of each, in one run; otherwise as `embed_and_blocks`.

        Raises: InvalidInput for several rows of a family whose code takes one.
        """
        if len(rows) == 1:
            return [self.embed_and_blocks(*rows[0])]
        self._check_rows([len(tokens) for _, tokens in rows])
        caches = [self._sequences.at(sequence, self._sequences.position(sequence)) for sequence, _ in rows]
        tokens = mx.array([list(tokens) for _, tokens in rows], dtype=mx.int32)
        return self._leave_rows(self._passage.of_tokens(tokens, joined_slots(caches)), caches)

    def step(self, sequence: int, position: int, tokens: Sequence[int]) -> HiddenState:
        """The token at `position` of a sequence, and guesses of what follows it, embedded and run through our blocks.
        What the sequence has from there on was guessed too, and is forgotten.

        Raises: NotFound for a sequence that isn't here, InvalidInput for one that isn't that long, or can't forget.
        """
        self._sequences.check(sequence)
        cache = self._sequences.at(sequence, position)
        ids, again = cache.given(mx.array([list(tokens)], dtype=mx.int32), has_guesses=len(tokens) > 1)
        slots = self._slots([cache], has_several=ids.shape[1] > 1)
        return self._leave(self._passage.of_tokens(ids, slots), cache, again=again)

    def run_rows(
        self, rows: Sequence[tuple[int, HiddenState]], *, has_guesses: bool = False
    ) -> list[HiddenState | NotFinite]:
        """Received states of several sequences, equally many tokens of each, through our blocks in one run; in a row's
        place why there is none. has_guesses: each row is a token and guesses of what follows it.

        Raises: NotFound or InvalidInput as `run_blocks`, before anything is run, and InvalidInput for several rows of a
        family whose code takes one.
        """
        begun = None if len(rows) == 1 else self._begun_rows(rows, has_guesses=has_guesses)
        if begun is None:
            return [or_not_finite(partial(self.run_blocks, *row, has_guesses=has_guesses)) for row in rows]
        return begun.told()

    def hand_over_rows(self, rows: Sequence[tuple[int, HiddenState]]) -> HandedOver[list[HiddenState | NotFinite]]:
        """As `run_rows` of one token each, handed over to the device: the next run may be built meanwhile."""
        if len(rows) == 1:
            cache, carried, again = self._through(*rows[0])
            return self._begun(carried, [cache], again=again).hand_over()
        if begun := self._begun_rows(rows, has_guesses=False):
            return begun.hand_over()
        made = self.run_rows(rows)
        return HandedOver(lambda: made)

    def check_next(self, sequence: int, state: HiddenState) -> None:
        """Whether a received state may be run; what is looked at is its bytes alone.

        Raises: InvalidInput when it is neither the sequence's next nor, where that can be, goes back behind guesses,
        when it is not of this model, or holds NaN or infinity.
        """
        stands_at = self._sequences.position(sequence)
        goes_back = 0 < state.position < stands_at and self._sequences.can_go_back(sequence, state.position)
        if stands_at != state.position and not goes_back:
            raise InvalidInput(f"sequence {sequence} stands at {stands_at} tokens, its frame at {state.position}")
        check_state(state, self._incoming)

    def run_blocks(self, sequence: int, state: HiddenState, *, has_guesses: bool = False) -> HiddenState:
        """A received state run through our blocks. What the sequence has beyond its position was a guess, and is
        forgotten. has_guesses: the state is that of a token and guesses of what follows it.

        Raises: NotFound or InvalidInput when the state is not the sequence's next, or not of this model; NotFinite when
        our blocks make NaN or infinity of it.
        """
        cache, carried, again = self._through(sequence, state, has_guesses=has_guesses)
        return self._leave(carried, cache, again=again)

    def absorb(self, sequence: int, state: HiddenState) -> None:
        """As `run_blocks`, where only the caches matter: the last stage's part of a prompt whose end is yet to come."""
        cache, *_ = self._through(sequence, state)
        mx.eval(cache.arrays)
        cache.advance(state.tokens)
        mx.clear_cache()

    def build_steps(self, rows: Sequence[tuple[int, int]], like: HiddenState) -> None:
        """Builds the step of these sequences, each at its position, all in one run, while their states are on the way,
        if those are like this one, of one token. Nothing where one of them is elsewhere by now."""
        if caches := self._sequences.standing(rows):
            late = LateInput(like.dtype, (len(caches), *like.shape[1:]))
            slots = self._slots(caches, has_several=False)
            Ahead(caches, late, lambda states: self._passage.of_state(self._entry.parted(states), slots), _like(like))

    def _through(
        self, sequence: int, state: HiddenState, *, has_guesses: bool = False
    ) -> tuple[SequenceCache, Carried, int]:
        """The caches, what our blocks make of the state, and how many tokens are before those of the state in it."""
        if ahead := self._sequences.ahead([(sequence, state.position)], _like(state)):
            return ahead.caches[0], ahead.given([state]), 0
        cache = self._entered(sequence, state)
        rows, again = cache.given(unpack(state), has_guesses=has_guesses)
        slots = self._slots([cache], has_several=has_guesses or again > 0)
        return cache, self._passage.of_state(self._entry.parted(rows), slots), again

    def _slots(self, caches: Sequence[SequenceCache], *, has_several: bool) -> list[Any]:
        """has_several: each row has tokens that are to be computed as if one by one."""
        return joined_slots(caches, by_token=has_several and self._steps.by_token)

    def _entered(self, sequence: int, state: HiddenState) -> SequenceCache:
        """The caches of the sequence whose next state this is."""
        if state.shape[2] != self._incoming.width:
            raise InvalidInput(f"a hidden state is {state.shape[2]} wide, this model's are {self._incoming.width}")
        return self._sequences.at(sequence, state.position)

    def _check_rows(self, tokens: Sequence[int]) -> None:
        if not self._takes_rows:
            raise InvalidInput("this architecture's code runs one sequence at a time")
        if len(set(tokens)) > 1:
            raise InvalidInput("the rows of one run have equally many tokens")

    def _begun_rows(self, rows: Sequence[tuple[int, HiddenState]], *, has_guesses: bool) -> BegunRun | None:
        """A run of several rows; None where one of them has to run tokens of an earlier one again, by itself."""
        states = [state for _, state in rows]
        self._check_rows([state.tokens for state in states])
        at = [(sequence, state.position) for sequence, state in rows]
        alike = len({(state.dtype, state.shape) for state in states}) == 1
        if alike and not has_guesses and (ahead := self._sequences.ahead(at, _like(states[0]))):
            return self._begun(ahead.given(states), ahead.caches)
        caches = [self._entered(sequence, state) for sequence, state in rows]
        if any(cache.has_some_again for cache in caches):
            return None
        if has_guesses:
            for cache, state in zip(caches, states, strict=True):
                cache.given(unpack(state), has_guesses=True)
        received = self._entry.parted(unpack_rows(states))
        return self._begun(self._passage.of_state(received, self._slots(caches, has_several=has_guesses)), caches)

    def _begun(self, carried: Carried, caches: Sequence[SequenceCache], *, again: int = 0) -> BegunRun:
        """again: tokens before those that are wanted."""
        made = self._exit.joined(carried)
        begun = BegunRun(
            made[:, again:] if again else made, [cache.position for cache in caches], layout=self._exit.layout
        )
        for cache in caches:
            cache.advance(made.shape[1] - again)
        return begun

    def _leave_rows(self, carried: Carried, caches: Sequence[SequenceCache]) -> list[HiddenState]:
        states = pack_rows(self._exit.joined(carried), [cache.position for cache in caches])
        for cache, state in zip(caches, states, strict=True):
            cache.advance(state.tokens)
        return states

    def _leave(self, carried: Carried, cache: SequenceCache, *, again: int = 0) -> HiddenState:
        """again: tokens before those that are wanted."""
        made = self._exit.joined(carried)
        state = pack(made[:, again:] if again else made, cache.position)
        cache.advance(state.tokens)
        made_well(state, self._exit.layout)
        if state.tokens >= LARGE_CHUNK_TOKENS:
            mx.clear_cache()
        return state


def _like(state: HiddenState) -> object:
    """What tells apart for which states a step is built."""
    return state.dtype, state.shape
