"""A ring of shards in one process, with every hidden state made bytes and read again, as on the wire."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model

from kafila_sidecar.models.reading import read
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState


def tensors_for(folder: Path, start: int, end: int, head: bool) -> dict[Path, list[str]]:
    """Which tensors of each file a stage with the blocks [start, end) needs."""
    config = json.loads((folder / "config.json").read_text())
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    reading = read(config, index)
    files: dict[Path, list[str]] = {}
    for tensor, file in index.items():
        if reading.holds(tensor, start=start, end=end, head=head):
            files.setdefault(folder / file, []).append(tensor)
    return files


def load_shard(folder: Path, start: int, end: int, head: bool, **more: Any) -> Shard:
    """`more`: bits, before, quick as in `Shard.load`."""
    return Shard.load(
        folder=folder, files=tensors_for(folder, start, end, head), start=start, end=end, head=head, **more
    )


def over_the_wire(state: HiddenState) -> HiddenState:
    return HiddenState(bytes(state.payload), state.dtype, state.shape, state.position)


class RingOfShards:
    """Shards with the blocks between neighbouring `cuts`, the head first."""

    def __init__(self, folder: Path, cuts: Sequence[int], *, quick: bool = False) -> None:
        pairs = list(pairwise(cuts))
        self.shards = [load_shard(folder, start, end, i == 0, quick=quick) for i, (start, end) in enumerate(pairs)]

    def prefill(self, sequence: int, tokens: Sequence[int]) -> None:
        """A chunk of the prompt after which more of it comes: nobody wants the last stage's output."""
        state = self.shards[0].embed_and_blocks(sequence, tokens)
        for shard in self.shards[1:-1]:
            state = shard.run_blocks(sequence, over_the_wire(state))
        if len(self.shards) > 1:
            self.shards[-1].absorb(sequence, over_the_wire(state))

    def step(self, sequence: int, tokens: Sequence[int]) -> mx.array:
        """The logits [V] after `tokens`."""
        state = self.shards[0].embed_and_blocks(sequence, tokens)
        for shard in self.shards[1:]:
            state = shard.run_blocks(sequence, over_the_wire(state))
        return self.shards[0].norm_and_head(sequence, over_the_wire(state))

    def greedy(self, prompt: Sequence[int], count: int, chunk: int, sequence: int = 1) -> list[tuple[int, mx.array]]:
        """`count` greedy tokens, each with the log-probabilities that it was picked from."""
        for at in range(0, len(prompt) - 1, chunk):
            self.prefill(sequence, prompt[at : min(at + chunk, len(prompt) - 1)])
        answer, token = [], prompt[-1]
        for _ in range(count):
            logits = self.step(sequence, [token])
            scores = logits - mx.logsumexp(logits, keepdims=True)
            token = int(mx.argmax(scores))
            answer.append((token, scores))
        return answer

    def release(self, sequence: int = 1) -> None:
        for shard in self.shards:
            shard.release(sequence)

    def close(self) -> None:
        for shard in self.shards:
            shard.close()


class Whole:
    """The same checkpoint in mlx-lm's own hands."""

    def __init__(self, folder: Path) -> None:
        self.model, _ = load_model(folder)

    def greedy(self, prompt: Sequence[int], count: int, chunk: int) -> list[tuple[int, mx.array]]:
        steps: Any = generate_step(mx.array(list(prompt)), self.model, max_tokens=count, prefill_step_size=chunk)
        return list(steps)


def assert_same(answer: list[tuple[int, mx.array]], reference: list[tuple[int, mx.array]]) -> None:
    """The same tokens from the same log-probabilities, bit for bit."""
    assert [token for token, _ in answer] == [token for token, _ in reference]
    assert all(mx.array_equal(ours, theirs) for (_, ours), (_, theirs) in zip(answer, reference, strict=True))
