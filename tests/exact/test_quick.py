"""Prompts through f32 on a processor: as near to the exact result as without, quicker, and the same at every cut."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedLinear

from kafila_sidecar.runtime.shard.making import quick
from kafila_sidecar.runtime.shard.making.quick import LEAST_TOKENS, quicken_prompts
from tests.exact.shards import RingOfShards
from tests.exact.test_tiny import PROMPT
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx

FORMS: dict[str, dict[str, Any]] = {
    "bf16": {"dtype": "bf16"},
    "4 bits": {"dtype": "bf16", "bits": 4},
    "8 bits": {"dtype": "bf16", "bits": 8},
}


def logits_of(folder: Path, cuts: tuple[int, ...], *, quick: bool, tokens: int) -> mx.array:
    ring = RingOfShards(folder, cuts, quick=quick)
    logits = ring.step(1, PROMPT[:tokens])
    ring.close()
    return logits.astype(mx.float32)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("bits", [16, 8, 4, 3])
def test_product_when_through_f32_then_no_farther_from_the_exact_one_than_without(bits: int, bias: bool) -> None:
    mx.random.seed(3)
    module: Any = Linear(256, 96, bias=bias)
    module.set_dtype(mx.bfloat16)
    weights = module.weight
    if bits < 16:
        module = QuantizedLinear.from_linear(module, group_size=64, bits=bits)
        weights = mx.dequantize(module.weight, module.scales, module.biases, group_size=64, bits=bits)
    x = mx.random.normal((1, 40, 256)).astype(mx.bfloat16)
    exact = as_doubles(x) @ as_doubles(weights).T + (as_doubles(module.bias) if bias else 0.0)
    plain = np.abs(as_doubles(module(x)) - exact).mean()
    quicken_prompts([module])
    assert np.abs(as_doubles(module(x)) - exact).mean() <= 1.05 * plain


def test_product_when_of_several_slices_then_the_one_of_the_whole_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = Linear(256, 96)
    module.set_dtype(mx.bfloat16)
    x = mx.random.normal((1, 40, 256)).astype(mx.bfloat16)
    quicken_prompts([module])
    whole = as_doubles(module(x))
    monkeypatch.setattr(quick, "SLICE_WEIGHTS", 7 * 256)
    assert np.abs(as_doubles(module(x)) - whole).max() <= np.abs(whole).max() / 128


def as_doubles(array: mx.array) -> np.ndarray[Any, Any]:
    return np.array(array.astype(mx.float32)).astype(np.float64)


@pytest.mark.parametrize("cuts", [(0, 3, 6), (0, 1, 2, 6)], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_ring_when_prompts_go_through_f32_then_the_same_bits_at_every_cut(
    tmp_path: Path, form: str, cuts: tuple[int, ...]
) -> None:
    folder = tiny_folder(tmp_path / "model", **FORMS[form])
    whole = logits_of(folder, (0, 6), quick=True, tokens=40)
    assert bool(mx.array_equal(logits_of(folder, cuts, quick=True, tokens=40), whole))


@pytest.mark.parametrize("form", FORMS)
def test_few_tokens_when_prompts_go_through_f32_then_the_architectures_own_bits(tmp_path: Path, form: str) -> None:
    folder = tiny_folder(tmp_path / "model", **FORMS[form])
    few = LEAST_TOKENS - 1
    plain = logits_of(folder, (0, 6), quick=False, tokens=few)
    assert bool(mx.array_equal(logits_of(folder, (0, 6), quick=True, tokens=few), plain))
