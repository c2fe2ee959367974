"""A shard: the blocks [start, end) of a model, with embedding, norm and unembedding on the head.

Every method runs on the MLX thread (`MlxThread.run`). This file imports without MLX, so that the event loop may name
its types; MLX comes in with `Shard.load`, on its thread.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.shard.state import HiddenState

if TYPE_CHECKING:
    import mlx.core as mx

    from kafila_sidecar.runtime.shard.kv import SequenceCache, Sequences
    from kafila_sidecar.runtime.shard.partial import PartialModel
    from kafila_sidecar.runtime.text.sample import Sampler

LARGE_CHUNK_TOKENS = 32  # from here on a chunk's temporaries are worth giving back at once


class Shard:
    """One stage's model and the sequences that it serves."""

    def __init__(self, *, passage: "PartialModel", sequences: "Sequences", width: int, weight_bytes: int) -> None:
        self.width = width
        self.weight_bytes = weight_bytes
        self._passage = passage
        self._sequences = sequences

    @classmethod
    def load(
        cls,
        *,
        folder: Path,
        files: Mapping[Path, Collection[str]],
        start: int,
        end: int,
        head: bool,
        before: "Shard | None" = None,
    ) -> "Shard":
        """Loads our part of a checkpoint, taking no more memory than it and a tenth.

        folder: has config.json. files: which tensors come from which safetensors file; files may be sparse, and named
        .partial. before: another part of the same checkpoint, which is closed: what both parts have is taken over as it
        is in memory, the rest of it freed before anything is read.

        Raises: Refused for a family that isn't offered, or weights that are missing or don't fit.
        """
        from kafila_sidecar.runtime.shard.kv import Sequences
        from kafila_sidecar.runtime.shard.loading import load_part, read_config, weight_bytes
        from kafila_sidecar.runtime.shard.partial import doctor

        config = read_config(folder)
        kept = {} if before is None else before.give_up()
        family, model = load_part(config, files, start=start, end=end, head=head, kept=kept)
        size = weight_bytes(model)
        sequences = Sequences(model, start=start, end=end)
        passage = doctor(model, family.embedding, start=start, end=end)
        return cls(passage=passage, sequences=sequences, width=family.width(config), weight_bytes=size)

    def embed_and_blocks(self, sequence: int, tokens: Sequence[int]) -> HiddenState:
        """The next tokens of a sequence, embedded and run through our blocks; the head's first step."""
        import mlx.core as mx

        cache = self._sequences.at(sequence, self._sequences.position(sequence))
        hidden = self._passage.of_tokens(mx.array([list(tokens)], dtype=mx.int32), cache.slots)
        return self._leave(hidden, cache)

    def run_blocks(self, sequence: int, state: HiddenState) -> HiddenState:
        """A received state run through our blocks.

        Raises: NotFound or InvalidInput when the state is not the sequence's next, or not of this model.
        """
        cache, hidden = self._through(sequence, state)
        return self._leave(hidden, cache)

    def absorb(self, sequence: int, state: HiddenState) -> None:
        """As `run_blocks`, where only the caches matter: the last stage's part of a prompt whose end is yet to come."""
        import mlx.core as mx

        cache, _ = self._through(sequence, state)
        mx.eval(cache.arrays)
        cache.advance(state.tokens)
        mx.clear_cache()

    def norm_and_head(self, sequence: int, state: HiddenState, *, last_only: bool = True) -> "mx.array":
        """The logits [V] that follow the last token of `state`, or [T, V] after each of them, evaluated."""
        import mlx.core as mx

        hidden = self._unpacked(state)
        logits = self._passage.of_head(hidden[:, -1:] if last_only else hidden, self._sequences.of(sequence).slots)
        logits = logits[0, -1] if last_only else logits[0]
        mx.eval(logits)
        return logits

    def next_token(self, sequence: int, state: HiddenState, sampler: "Sampler") -> int:
        """The token that `sampler` picks after the last one of `state`."""
        return sampler.pick(self.norm_and_head(sequence, state))

    def position(self, sequence: int) -> int:
        """Tokens of the sequence that our blocks have taken in; 0 for one that hasn't begun."""
        return self._sequences.position(sequence)

    def release(self, sequence: int) -> None:
        """Frees what the sequence holds; may be said twice, and of sequences that never came."""
        self._sequences.release(sequence)

    @property
    def active(self) -> int:
        """How many sequences have caches here; a plain count, which any thread may read."""
        return len(self._sequences)

    def close(self) -> None:
        """Frees sequences and weights on this thread; the shard can't be used any more."""
        self._sequences.release_all()
        self._passage.free()

    def give_up(self) -> "dict[str, mx.array]":
        """Closes the shard but hands over its weights, by mlx-lm's names."""
        weights = self._passage.weights()
        self.close()
        return weights

    def _through(self, sequence: int, state: HiddenState) -> "tuple[SequenceCache, mx.array]":
        hidden = self._unpacked(state)
        cache = self._sequences.at(sequence, state.position)
        return cache, self._passage.of_state(hidden, cache.slots)

    def _unpacked(self, state: HiddenState) -> "mx.array":
        from kafila_sidecar.runtime.shard.arrays import unpack

        if state.shape[2] != self.width:
            raise InvalidInput(f"a hidden state is {state.shape[2]} wide, this model's are {self.width}")
        return unpack(state)

    def _leave(self, hidden: "mx.array", cache: "SequenceCache") -> HiddenState:
        import mlx.core as mx

        from kafila_sidecar.runtime.shard.arrays import pack

        state = pack(hidden, cache.position)
        cache.advance(state.tokens)
        if state.tokens >= LARGE_CHUNK_TOKENS:
            mx.clear_cache()
        return state
