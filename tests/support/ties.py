"""Whether two greedy answers may differ where they do: a model whose parts were divided anew rounds otherwise."""

from pathlib import Path

import mlx.core as mx
from mlx_lm.utils import load_model
from tokenizers import Tokenizer

TIE = 1e-3
"""Two logits this close may change places."""


def is_same_or_tie(folder: Path, prompt: str, text: str, other: str) -> bool:
    """The same text, or one that differs first where the whole model's best two logits are within `TIE`."""
    if text == other:
        return True
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    asked = tokenizer.encode(prompt).ids
    ids, others = tokenizer.encode(text).ids, tokenizer.encode(other).ids
    pairs = zip(ids, others, strict=False)
    same = next((at for at, (one, another) in enumerate(pairs) if one != another), min(len(ids), len(others)))
    return _gap(folder, [*asked, *ids[:same]]) <= TIE


def _gap(folder: Path, ids: list[int]) -> float:
    """Between the two best logits after these tokens."""
    model, _ = load_model(folder)
    best = mx.sort(model(mx.array([ids]))[0, -1])[-2:]
    return float(best[1] - best[0])
