"""A shard: the blocks [start, end) of a model, with embedding, norm and unembedding on the head.

Every method runs on the MLX thread (`MlxThread.run`). This file imports without MLX, so that the event loop may name
its types; MLX comes in with `Shard.load`, on its thread. Blocks are run in `blocks.py`, tokens picked in `picking.py`
and `following.py`; how many tokens a step may have is found out in `steps.py`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafila_sidecar.models.anatomy import Headers
from kafila_sidecar.models.family import Together
from kafila_sidecar.runtime.handed_over import HandedOver
from kafila_sidecar.runtime.shard.finite import WHY, NotFinite
from kafila_sidecar.runtime.shard.following import Follow, TokenRunner
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.runtime.shard.picking import CameTrue, Guessed, Pick, Picked, TokenPicker
from kafila_sidecar.runtime.shard.state import HiddenState

if TYPE_CHECKING:
    import mlx.core as mx

    from kafila_sidecar.runtime.shard.blocks import BlockRunner
    from kafila_sidecar.runtime.shard.carried import Packing
    from kafila_sidecar.runtime.shard.kv import Sequences
    from kafila_sidecar.runtime.shard.making.building import Built
    from kafila_sidecar.runtime.shard.partial import PartialModel
    from kafila_sidecar.runtime.shard.steps import LearntSteps


class Shard:
    """One stage's model and the sequences that it serves.

    entry, exit, last: how what comes in, what goes out, and what comes to the head at last lies on the wire.
    """

    def __init__(
        self,
        *,
        passage: "PartialModel",
        sequences: "Sequences",
        blocks: "BlockRunner",
        steps: "LearntSteps",
        entry: "Packing",
        exit: "Packing",
        last: "Packing",
        weight_bytes: int,
        held: frozenset[str],
        takes_rows: bool,
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
        self.runs_ahead = runs_ahead  # whether `follow` is for it
        self.hands_over = (
            hands_over  # whether a device computes on while this thread builds: `hand_over_rows` and `_pick`
        )
        self.weight_bytes = weight_bytes
        self._passage = passage
        self._sequences = sequences
        self._blocks = blocks
        self._steps = steps
        self._held = held
        self._last = last
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

        from kafila_sidecar.runtime.shard.blocks import BlockRunner
        from kafila_sidecar.runtime.shard.kv import Sequences, can_go_back, can_rewind, has_window
        from kafila_sidecar.runtime.shard.making.building import flat
        from kafila_sidecar.runtime.shard.making.experts import check_experts
        from kafila_sidecar.runtime.shard.making.quick import quicken_prompts
        from kafila_sidecar.runtime.shard.partial import PartialModel
        from kafila_sidecar.runtime.shard.rows import let_take_rows
        from kafila_sidecar.runtime.shard.steps import LearntSteps

        check_experts(built.blocks[start:end])
        if quick:
            quicken_prompts(built.blocks[start:end], built.family.state)
        let_take_rows(built.model, built.blocks[start:end], built.family.together)
        size = built.weight_bytes(start, end, head=head)
        own = built.roll.slots_of(start, end, head=head)
        caches = built.caches()
        goes_back = [can_go_back(cache) for cache in caches]
        beside = [one for one in built.family.beside if one.parameter in built.roll.beside]
        passage = PartialModel(built.model, built.family, beside, start=start, end=end, idle=built.caches())
        sequences = Sequences(built.caches, own)
        entry, exit, last = (built.roll.packing(built.family, at) for at in (start, end, built.count))
        held = frozenset(name for name, _ in flat(built.model) if built.is_of(name, start, end, head=head))
        takes_rows = built.family.together is not Together.NOTHING
        all_rewind = all(map(can_rewind, caches))
        own_rewind = all(can_rewind(caches[slot]) for slot in own)
        has_windows = any(has_window(caches[slot]) for slot in own)  # which keep tokens in no order of their own
        steps = LearntSteps(
            passage=passage,
            sequences=sequences,
            entry=entry,
            last=last,
            held=held,
            is_head=head,
            can_guess=all(goes_back[slot] for slot in own) and not entry.beside and not exit.beside,
            can_attend_by_token=built.family.together is Together.BUT_ATTENTION and not has_windows,
            takes_rows=takes_rows,
            can_rewind=own_rewind,
        )
        return cls(
            passage=passage,
            sequences=sequences,
            blocks=BlockRunner(
                passage=passage, sequences=sequences, entry=entry, exit=exit, steps=steps, takes_rows=takes_rows
            ),
            steps=steps,
            entry=entry,
            exit=exit,
            last=last,
            weight_bytes=size,
            held=held,
            takes_rows=takes_rows,
            can_rewind=own_rewind,
            all_rewind=all_rewind,
            all_go_back=all(goes_back),
            runs_ahead=all_rewind and end - start == built.count and mx.default_device() != mx.Device(mx.cpu),
            hands_over=mx.default_device() != mx.Device(mx.cpu),
        )

    def embed_and_blocks(self, sequence: int, tokens: Sequence[int]) -> HiddenState:
        """The next tokens of a sequence, embedded and run through our blocks; the head's first step."""
        return self._blocks.embed_and_blocks(sequence, tokens)

    def embed_rows(self, rows: Sequence[tuple[int, Sequence[int]]]) -> list[HiddenState]:
        """The next tokens of several sequences in one run, as `BlockRunner.embed_rows`."""
        return self._blocks.embed_rows(rows)

    def step(self, sequence: int, position: int, tokens: Sequence[int]) -> HiddenState:
        """The token at `position` of a sequence, and guesses of what follows it, as `BlockRunner.step`."""
        return self._blocks.step(sequence, position, tokens)

    def run_rows(
        self, rows: Sequence[tuple[int, HiddenState]], *, has_guesses: bool = False
    ) -> list[HiddenState | NotFinite]:
        """Received states of several sequences in one run, as `BlockRunner.run_rows`."""
        return self._blocks.run_rows(rows, has_guesses=has_guesses)

    def hand_over_rows(self, rows: Sequence[tuple[int, HiddenState]]) -> HandedOver[list[HiddenState | NotFinite]]:
        """As `run_rows` of one token each, handed over to the device: the next run may be built meanwhile."""
        return self._blocks.hand_over_rows(rows)

    def check_next(self, sequence: int, state: HiddenState) -> None:
        """Whether a received state may be run, by its bytes alone; raises as `BlockRunner.check_next`."""
        self._blocks.check_next(sequence, state)

    def run_blocks(self, sequence: int, state: HiddenState, *, has_guesses: bool = False) -> HiddenState:
        """A received state run through our blocks, as `BlockRunner.run_blocks`."""
        return self._blocks.run_blocks(sequence, state, has_guesses=has_guesses)

    def absorb(self, sequence: int, state: HiddenState) -> None:
        """As `run_blocks`, where only the caches matter: the last stage's part of a prompt whose end is yet to come."""
        self._blocks.absorb(sequence, state)

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
        """Builds a step whose states are on the way, as `BlockRunner.build_steps`."""
        self._blocks.build_steps(rows, like)

    def learn_steps(self, before: "Shard | None" = None) -> None:
        """Finds out how many tokens a step may have here, with two of our blocks; takes a second or two at most.
        before: another part of the same checkpoint, in the same form, that may have learnt it."""
        self._steps.learn(None if before is None else before._steps)

    @property
    def step_limits(self) -> StepLimits:
        """Of steps with several tokens, once they are known."""
        return self._steps.limits

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
