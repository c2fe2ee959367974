"""A shard: the blocks [start, end) of a model, with embedding, norm and unembedding on the head.

Every method runs on the MLX thread (`MlxThread.run`). This file imports without MLX, so that the event loop may name
its types; MLX comes in with `Shard.load`, on its thread.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.models.anatomy import Headers
from kafila_sidecar.models.family import Together
from kafila_sidecar.runtime.handed_over import HandedOver
from kafila_sidecar.runtime.shard.finite import WHY, NotFinite, check_state, made_well, or_not_finite
from kafila_sidecar.runtime.shard.following import Follow, TokenRunner
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.runtime.shard.picking import CameTrue, Guessed, Pick, Picked, TokenPicker
from kafila_sidecar.runtime.shard.state import HiddenState

if TYPE_CHECKING:
    import mlx.core as mx

    from kafila_sidecar.runtime.shard.begun import BegunRun
    from kafila_sidecar.runtime.shard.carried import Carried, Packing
    from kafila_sidecar.runtime.shard.kv import SequenceCache, Sequences
    from kafila_sidecar.runtime.shard.making.building import Built
    from kafila_sidecar.runtime.shard.partial import PartialModel

log = logging.getLogger(__name__)

LARGE_CHUNK_TOKENS = 32  # from here on a chunk's temporaries are worth giving back at once


class Shard:
    """One stage's model and the sequences that it serves.

    entry, exit, last: how what comes in, what goes out, and what comes to the head at last lies on the wire.
    """

    def __init__(
        self,
        *,
        passage: "PartialModel",
        sequences: "Sequences",
        entry: "Packing",
        exit: "Packing",
        last: "Packing",
        weight_bytes: int,
        head: bool,
        held: frozenset[str],
        takes_rows: bool,
        attends_by_row: bool,
        can_go_back: bool,
        has_windows: bool,
        can_rewind: bool,
        all_rewind: bool,
        all_go_back: bool,
        runs_ahead: bool,
        hands_over: bool,
    ) -> None:
        self.entry, self.last = entry.layout, last.layout  # of what comes in, and of what comes to the head at last
        self.takes_rows = takes_rows  # whether several sequences can be in one run
        self.all_rewind = all_rewind  # whether a sequence can go back any number of tokens, at every stage of the model
        self.model_can_forget = all_go_back and not exit.beside  # and so at least guesses, as far as the head knows
        self.can_rewind = can_rewind  # and so at this one
        self._can_go_back = can_go_back  # over guesses, at this one
        self._has_windows = has_windows  # which keep tokens in no order of their own
        self.runs_ahead = runs_ahead  # whether `follow` is for it
        self.hands_over = (
            hands_over  # whether a device computes on while this thread builds: `hand_over_rows` and `_pick`
        )
        self._has_learnt = False
        self.step_limits = StepLimits()  # of steps with several tokens, once they are known
        self.weight_bytes = weight_bytes
        self._is_head = head
        self._can_attend_by_token = attends_by_row
        self._by_token = False  # whether guesses attend token by token
        self._passage = passage
        self._sequences = sequences
        self._held = held
        self._entry, self._exit, self._last = entry, exit, last
        self._picker = TokenPicker(passage=passage, sequences=sequences, exit=exit, last=last)
        self._follower = TokenRunner(passage=passage, sequences=sequences)

    @classmethod
    def load(
        cls,
        *,
        folder: Path,
        files: Mapping[Path, Collection[str]],
        start: int,
        end: int,
        head: bool,
        headers: Headers | None = None,
        bits: int = 0,
        before: "Shard | None" = None,
        quick: bool = False,
        came: Callable[[], object] = lambda: None,
    ) -> "Shard":
        """Loads our part of a checkpoint, taking no more memory than it and a tenth.

        folder: has config.json. files: which tensors come from which safetensors file; files may be sparse, and named
        .partial. headers: of all tensors, where `files` aren't all files. bits: 4 or 8 packs a 16-bit checkpoint's
        matrices while loading, the same on every member; 0: as they are. before: another part of the same checkpoint,
        in the same form, which is closed: what both parts have is taken over as it is in memory, the rest of it freed
        before anything is read. quick: prompts may be computed in f32, see `quick.py`. came: called whenever a
        part of it has been read.

        Raises: Refused for a family that isn't offered, or weights that are missing or don't fit.
        """
        from kafila_sidecar.runtime.memory import give_back
        from kafila_sidecar.runtime.shard.making.loading import load_part, read_config

        kept = None if before is None else before.give_up()
        built = load_part(
            read_config(folder),
            files,
            start=start,
            end=end,
            head=head,
            headers=headers,
            bits=bits,
            kept=kept,
            came=came,
        )
        if before is not None:
            give_back()
        return cls.of(built, start, end, head=head, quick=quick)

    @classmethod
    def of(cls, built: "Built", start: int, end: int, *, head: bool, quick: bool = False) -> "Shard":
        """The stage [start, end) of a Model whose weights are in place; `quick` as in `load`.

        Raises: Refused where this machine's processor can't compute them.
        """
        import mlx.core as mx

        from kafila_sidecar.runtime.shard.kv import Sequences, can_go_back, can_rewind, has_window
        from kafila_sidecar.runtime.shard.making.building import flat
        from kafila_sidecar.runtime.shard.making.experts import check_experts
        from kafila_sidecar.runtime.shard.making.quick import quicken_prompts
        from kafila_sidecar.runtime.shard.partial import PartialModel
        from kafila_sidecar.runtime.shard.rows import let_take_rows

        check_experts(built.blocks[start:end])
        if quick:
            quicken_prompts(built.blocks[start:end], built.family.state)
        let_take_rows(built.model, built.blocks[start:end], built.family.together)
        size = built.weight_bytes(start, end, head=head)
        own = built.roll.slots_of(start, end, head=head)
        caches = built.caches()
        goes_back = [can_go_back(cache) for cache in caches]
        all_rewind = all(map(can_rewind, caches))
        beside = [one for one in built.family.beside if one.parameter in built.roll.beside]
        return cls(
            passage=PartialModel(built.model, built.family, beside, start=start, end=end, idle=built.caches()),
            sequences=Sequences(built.caches, own),
            entry=built.roll.packing(built.family, start),
            exit=built.roll.packing(built.family, end),
            last=built.roll.packing(built.family, built.count),
            weight_bytes=size,
            head=head,
            held=frozenset(name for name, _ in flat(built.model) if built.is_of(name, start, end, head=head)),
            can_go_back=all(goes_back[slot] for slot in own),
            has_windows=any(has_window(caches[slot]) for slot in own),
            can_rewind=all(can_rewind(caches[slot]) for slot in own),
            all_rewind=all_rewind,
            all_go_back=all(goes_back),
            runs_ahead=all(map(can_rewind, caches))
            and end - start == built.count
            and mx.default_device() != mx.Device(mx.cpu),
            hands_over=mx.default_device() != mx.Device(mx.cpu),
            takes_rows=built.family.together is not Together.NOTHING,
            attends_by_row=built.family.together is Together.BUT_ATTENTION,
        )

    def embed_and_blocks(self, sequence: int, tokens: Sequence[int]) -> HiddenState:
        """The next tokens of a sequence, embedded and run through our blocks; the head's first step."""
        import mlx.core as mx

        cache = self._sequences.at(sequence, self._sequences.position(sequence))
        ids, again = cache.given(mx.array([list(tokens)], dtype=mx.int32))
        return self._leave(self._passage.of_tokens(ids, cache.slots), cache, again=again)

    def embed_rows(self, rows: Sequence[tuple[int, Sequence[int]]]) -> list[HiddenState]:
        """The next tokens of several sequences, equally many of each, in one run; otherwise as `embed_and_blocks`.

        Raises: InvalidInput for several rows of a family whose code takes one.
        """
        import mlx.core as mx

        from kafila_sidecar.runtime.shard.rows import joined_slots

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
        import mlx.core as mx

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
        check_state(state, self.entry)

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
        import mlx.core as mx

        cache, *_ = self._through(sequence, state)
        mx.eval(cache.arrays)
        cache.advance(state.tokens)
        mx.clear_cache()

    def norm_and_head(self, sequence: int, state: HiddenState, *, last_only: bool = True) -> "mx.array":
        """The logits [V] that follow the last token of `state`, or [T, V] after each of them, evaluated."""
        import mlx.core as mx

        from kafila_sidecar.runtime.shard.arrays import unpack

        self._sequences.check(sequence)
        carried = self._last.parted(unpack(state))
        logits = self._passage.of_head(carried.last_token() if last_only else carried)
        logits = logits[0, -1] if last_only else logits[0]
        mx.eval(logits)
        return logits

    def embedding(self, sequence: int, state: HiddenState) -> tuple[float, ...]:
        """The embedding of what the last token of `state` ends, D numbers of length 1: its state after the last norm,
        as the stock runner gives of a model without a pooling of its own.

        Raises: NotFinite; Refused where the architecture's code gives no such state.
        """
        import mlx.core as mx

        from kafila_sidecar.runtime.shard.arrays import unpack

        self._sequences.check(sequence)
        normed = self._passage.of_norm(self._last.parted(unpack(state)).last_token())[0, -1].astype(mx.float32)
        numbers: Any = (normed / mx.maximum(mx.linalg.norm(normed), 1e-12)).tolist()
        if not all(map(isfinite, numbers)):
            raise NotFinite(f"the model's last state of this text holds NaN or infinity: {WHY}")
        return tuple(numbers)

    def logits_of(self, rows: Sequence[tuple[int, HiddenState]]) -> "mx.array":
        """The logits [B, V] that follow the last token of each sequence's state, evaluated."""
        import mlx.core as mx

        from kafila_sidecar.runtime.shard.arrays import unpack

        for sequence, _ in rows:
            self._sequences.check(sequence)
        logits = self._picker.logits([self._last.parted(unpack(state)) for _, state in rows])
        mx.eval(logits)
        return logits

    def pick(self, rows: Sequence[Pick]) -> list[Picked | NotFinite]:
        """The token that each row's sampler picks after the last one of its state, and where the answer goes on the
        token's state after our blocks, all in one evaluation; in a row's place why there is none.

        Raises: NotFound for a sequence that was released or never began.
        """
        return self._picker.begin(rows).told()

    def hand_over_pick(self, rows: Sequence[Pick]) -> HandedOver[list[Picked | NotFinite]]:
        """As `pick`, handed over to the device: the next run may be built meanwhile."""
        return self._picker.begin(rows).hand_over()

    def build_pick(self, rows: Sequence[Pick]) -> None:
        """As `TokenPicker.build`."""
        self._picker.build(rows)

    def follow(self, row: Follow) -> Picked:
        """The token that follows the row's, where all the blocks are here; what is wanted after it is begun.

        Raises: NotFound for a sequence that was released or never began; NotFinite for scores without a choice.
        """
        return self._follower.follow(row)

    def prepare_follow(self, sequence: int) -> None:
        """Begins what `follow` will be asked for, if the sequence is still here."""
        self._follower.prepare(sequence)

    def check_guesses(self, row: Guessed) -> CameTrue:
        """The tokens that the row's sampler picks one after another, as long as they are those that were guessed.

        Raises: NotFound for a sequence that was released or never began; NotFinite for scores without a choice.
        """
        return self._picker.check(row)

    def build_steps(self, rows: Sequence[tuple[int, int]], like: HiddenState) -> None:
        """Builds the step of these sequences, each at its position, all in one run, while their states are on the way,
        if those are like this one, of one token. Nothing where one of them is elsewhere by now."""
        from kafila_sidecar.runtime.shard.ahead import Ahead, LateInput

        if caches := self._sequences.standing(rows):
            late = LateInput(like.dtype, (len(caches), *like.shape[1:]))
            slots = self._slots(caches, has_several=False)
            Ahead(caches, late, lambda states: self._passage.of_state(self._entry.parted(states), slots), _like(like))

    def learn_steps(self, before: "Shard | None" = None) -> None:
        """Finds out how many tokens a step may have here, with two of our blocks; takes a second or two at most.

        Where the model's code can't run a block by itself, steps stay single. before: another part of the same
        checkpoint, in the same form, that has learnt it. Blocks are alike, so nothing is run again then, unless only we
        have what is around them.
        """
        from kafila_sidecar.runtime.shard.steps import Trial, element_type, look

        if not self._can_go_back or self._entry.beside or self._exit.beside:
            return
        if before is not None and before._has_learnt and before._is_head >= self._is_head:
            self.step_limits, self._by_token, self._has_learnt = before.step_limits, before._by_token, True
            return
        self._has_learnt = True
        dtype = element_type(array for name, array in self._passage.weights().items() if name in self._held)
        trial = Trial(self._passage, self._entry, self._last, dtype, is_head=self._is_head)
        try:
            self.step_limits, self._by_token = look(
                trial,
                trial.begins(self._sequences.made),
                by_token=self._can_attend_by_token and not self._has_windows,
                rows=self.takes_rows,
                may_differ=self.can_rewind,
            )
        except Exception as error:  # noqa: BLE001  # whatever foreign code raises for blocks that belong together
            log.info("steps_stay_single reason=%s", type(error).__name__)

    def position(self, sequence: int) -> int:
        """Tokens of the sequence that our blocks have taken in; 0 for one that hasn't begun."""
        return self._sequences.position(sequence)

    def rewind(self, sequence: int, position: int) -> None:
        """Forgets the tokens of a sequence from `position` on, which were guesses.

        Raises: NotFound for a sequence that isn't here, InvalidInput for one that isn't that long, or can't forget.
        """
        self._sequences.check(sequence)
        self._sequences.at(sequence, position)

    def release(self, sequence: int) -> None:
        """Frees what the sequence holds; may be said twice, and of sequences that never came."""
        self._sequences.release(sequence)

    @property
    def active(self) -> int:
        """How many sequences have caches here; a plain count, which any thread may read."""
        return len(self._sequences)

    @property
    def kv_bytes(self) -> int:
        """What the caches of all sequences take."""
        return self._sequences.nbytes

    def close(self) -> None:
        """Frees sequences and weights on this thread; the shard can't be used any more."""
        from kafila_sidecar.runtime.memory import give_back

        self._sequences.release_all()
        self._passage.free()
        give_back()

    def give_up(self) -> "dict[str, mx.array]":
        """Closes the shard but hands over its weights, by mlx-lm's names."""
        weights = {name: array for name, array in self._passage.weights().items() if name in self._held}
        self.close()
        return weights

    def _through(
        self, sequence: int, state: HiddenState, *, has_guesses: bool = False
    ) -> "tuple[SequenceCache, Carried, int]":
        """The caches, what our blocks make of the state, and how many tokens are before those of the state in it."""
        from kafila_sidecar.runtime.shard.arrays import unpack

        if ahead := self._sequences.ahead([(sequence, state.position)], _like(state)):
            return ahead.caches[0], ahead.given([state]), 0
        cache = self._entered(sequence, state)
        rows, again = cache.given(unpack(state), has_guesses=has_guesses)
        slots = self._slots([cache], has_several=has_guesses or again > 0)
        return cache, self._passage.of_state(self._entry.parted(rows), slots), again

    def _slots(self, caches: "Sequence[SequenceCache]", *, has_several: bool) -> list[Any]:
        """has_several: each row has tokens that are to be computed as if one by one."""
        from kafila_sidecar.runtime.shard.rows import joined_slots

        return joined_slots(caches, by_token=has_several and self._by_token)

    def _entered(self, sequence: int, state: HiddenState) -> "SequenceCache":
        """The caches of the sequence whose next state this is."""
        if state.shape[2] != self.entry.width:
            raise InvalidInput(f"a hidden state is {state.shape[2]} wide, this model's are {self.entry.width}")
        return self._sequences.at(sequence, state.position)

    def _check_rows(self, tokens: Sequence[int]) -> None:
        if not self.takes_rows:
            raise InvalidInput("this architecture's code runs one sequence at a time")
        if len(set(tokens)) > 1:
            raise InvalidInput("the rows of one run have equally many tokens")

    def _begun_rows(self, rows: Sequence[tuple[int, HiddenState]], *, has_guesses: bool) -> "BegunRun | None":
        """A run of several rows; None where one of them has to run tokens of an earlier one again, by itself."""
        from kafila_sidecar.runtime.shard.arrays import unpack, unpack_rows

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

    def _begun(self, carried: "Carried", caches: "Sequence[SequenceCache]", *, again: int = 0) -> "BegunRun":
        """again: tokens before those that are wanted."""
        from kafila_sidecar.runtime.shard.begun import BegunRun

        made = self._exit.joined(carried)
        begun = BegunRun(
            made[:, again:] if again else made, [cache.position for cache in caches], layout=self._exit.layout
        )
        for cache in caches:
            cache.advance(made.shape[1] - again)
        return begun

    def _leave_rows(self, carried: "Carried", caches: "Sequence[SequenceCache]") -> list[HiddenState]:
        from kafila_sidecar.runtime.shard.arrays import pack_rows

        states = pack_rows(self._exit.joined(carried), [cache.position for cache in caches])
        for cache, state in zip(caches, states, strict=True):
            cache.advance(state.tokens)
        return states

    def _leave(self, carried: "Carried", cache: "SequenceCache", *, again: int = 0) -> HiddenState:
        """again: tokens before those that are wanted."""
        import mlx.core as mx

        from kafila_sidecar.runtime.shard.arrays import pack

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
