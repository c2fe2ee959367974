"""Prompts through f32 on a processor: as near to the exact result as without, quicker, and the same at every cut."""

from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedLinear
from mlx_lm.models.llama import Attention, ModelArgs
from mlx_lm.models.mla import MultiLinear

from kafila_sidecar.runtime.footprint import slices_bytes
from kafila_sidecar.runtime.shard.making import widening
from kafila_sidecar.runtime.shard.making.quick import quicken_prompts
from kafila_sidecar.runtime.shard.making.quick_experts import LEAST_TOKENS
from kafila_sidecar.runtime.shard.making.widening import rows_of, slices_of, unpacked
from tests.exact.shards import RingOfShards
from tests.exact.test_quantised import MODES
from tests.exact.test_tiny import PROMPT
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx

ARGUMENTS: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 128,
    "num_hidden_layers": 1,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 16,
}

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
    monkeypatch.setattr(widening, "SLICE_WEIGHTS", 7 * 256)
    assert np.abs(as_doubles(module(x)) - whole).max() <= np.abs(whole).max() / 128


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16], ids=str)
@pytest.mark.parametrize(
    ("mode", "bits", "group_size"),
    [
        *(("affine", bits, group_size) for bits in (8, 4, 3) for group_size in (32, 64, 128)),
        *(("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)),
    ],
)
def test_weights_when_unpacked_then_the_bits_of_mlx_in_f32(
    mode: str, bits: int, group_size: int, dtype: mx.Dtype
) -> None:
    mx.random.seed(7)
    module: Any = Linear(256, 96, bias=False)
    module.weight *= mx.repeat(mx.power(10.0, mx.random.uniform(-6, 1, (96, 8))), 32, axis=1)
    module.set_dtype(dtype)
    module = QuantizedLinear.from_linear(module, group_size=group_size, bits=bits, mode=mode)
    if mode == "mxfp4":
        module.scales[17] = 0  # stands for the least power of two
    scales, biases = module.scales, module.get("biases")
    if biases is not None:
        scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)
    whole = mx.dequantize(module.weight, scales, biases, group_size=group_size, bits=bits, mode=mode, dtype=mx.float32)
    rows = unpacked(module, lambda array: array[16:48])
    assert rows.dtype == mx.float32
    assert bool(mx.array_equal(rows, whole[16:48]))


@pytest.mark.parametrize("bits", [16, 8, 4, 3])
def test_product_when_through_f32_then_it_takes_no_more_than_is_planned(bits: int) -> None:
    """MLX would set up dozens of slices ahead of the one that it computes."""
    module: Any = Linear(2048, 6144, bias=False)
    module.set_dtype(mx.bfloat16)
    if bits < 16:
        module = QuantizedLinear.from_linear(module, group_size=64, bits=bits)
    quicken_prompts([module])
    x = mx.zeros((1, 16, 2048), mx.bfloat16)
    mx.eval(module.parameters(), x)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    mx.eval(module(x))
    states_bytes = 16 * (2048 + 2 * 6144) * 4
    assert mx.get_peak_memory() - before <= slices_bytes(2048 * 6144) + states_bytes


class FlatLayer(Module):
    """A block of one layer that gets the tokens of all sequences in one row, as some with experts do."""

    def __init__(self, layer: Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layer = layer

    def __call__(self, state: mx.array) -> mx.array:
        product: mx.array = self.layer(state.reshape(-1, state.shape[-1]))
        return product


@pytest.mark.parametrize(("sequences", "tokens", "is_quick"), [(1, 9, True), (1, 8, False), (2, 8, False)])
def test_product_when_all_tokens_come_in_one_row_then_the_blocks_state_says_whether_the_chunk_is_long(
    sequences: int, tokens: int, is_quick: bool
) -> None:
    mx.random.seed(3)
    block = FlatLayer(QuantizedLinear.from_linear(Linear(64, 96), group_size=32, bits=4))
    block.set_dtype(mx.bfloat16)
    state = mx.random.normal((sequences, tokens, 64)).astype(mx.bfloat16)
    plain = block(state)
    quicken_prompts([block])
    assert bool(mx.array_equal(block(state), plain)) != is_quick


class OneLayer(Module):
    """A block of one layer of matrices, of which each head has one."""

    def __init__(self, heads: Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.heads = heads

    def __call__(self, state: mx.array, x: mx.array, transpose: bool) -> mx.array:
        product: mx.array = self.heads(x, transpose)
        return product


@pytest.mark.parametrize("slice_weights", [1 << 20, 7 * 64])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("mode", ["bf16", "affine 4", "affine 3", "mxfp4", "nvfp4", "mxfp8"])
def test_heads_matrices_when_through_f32_then_no_farther_from_the_exact_product_and_few_tokens_as_they_were(
    mode: str, transpose: bool, heads: int, slice_weights: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mx.random.seed(3)
    monkeypatch.setattr(widening, "SLICE_WEIGHTS", slice_weights)
    layer: Any = MultiLinear(64, 96, 4)
    layer.set_dtype(mx.bfloat16)
    weights = layer.weight.astype(mx.float32)
    if mode in MODES:
        layer = layer.to_quantized(**MODES[mode])
        weights = mx.stack([unpacked(layer, partial(rows_of, expert=head)) for head in range(4)])
    x = mx.random.normal((1, heads, 50, 64 if transpose else 96)).astype(mx.bfloat16)
    states = [mx.zeros((1, tokens, 64)) for tokens in (LEAST_TOKENS - 1, LEAST_TOKENS)]
    block = OneLayer(layer)
    plain = block(states[0], x, transpose)
    quicken_prompts([block])
    few, through = (block(state, x, transpose) for state in states)
    assert bool(mx.array_equal(few, plain))
    assert (through.shape, through.dtype) == (plain.shape, plain.dtype)
    assert mode == "bf16" or not bool(mx.array_equal(through, plain))
    exact = as_doubles(x) @ as_doubles(weights.swapaxes(-1, -2) if transpose else weights)
    assert np.abs(as_doubles(through) - exact).mean() <= 1.05 * np.abs(as_doubles(plain) - exact).mean()


@pytest.mark.parametrize("mode", MODES)
def test_matrix_when_unpacked_in_f32_then_it_takes_no_more_than_is_planned(mode: str) -> None:
    module = QuantizedLinear.from_linear(Linear(1024, 512, bias=False), **MODES[mode])
    mx.eval(module.parameters())
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    mx.eval(list(slices_of(module)))
    assert mx.get_peak_memory() - before <= 1.02 * slices_bytes(1024 * 512)


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=str)
def test_attention_when_through_f32_then_no_farther_from_the_exact_one_than_without(dtype: mx.Dtype) -> None:
    mx.random.seed(5)
    attention: Any = Attention(ModelArgs(**ARGUMENTS))
    attention.set_dtype(dtype)
    x = mx.random.normal((1, 40, ARGUMENTS["hidden_size"])).astype(dtype)
    plain = as_doubles(attention(x, "causal"))
    attention.set_dtype(mx.float32)
    exact = as_doubles(attention(x.astype(mx.float32), "causal"))
    attention.set_dtype(dtype)
    quicken_prompts([attention])
    through = as_doubles(attention(x, "causal"))
    assert not np.array_equal(through, plain)
    assert np.abs(through - exact).mean() <= 1.05 * np.abs(plain - exact).mean()
    few = x[:, : LEAST_TOKENS - 1]
    others: Any = Attention(ModelArgs(**ARGUMENTS))
    others.update(attention.parameters())
    assert bool(mx.array_equal(attention(few, "causal"), others(few, "causal")))


def test_prompt_when_another_shard_goes_through_f32_then_this_ones_bits_stay(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model", dtype="bf16")
    before = logits_of(folder, (0, 6), quick=False, tokens=40)
    through = logits_of(folder, (0, 6), quick=True, tokens=40)
    assert not bool(mx.array_equal(through, before))
    assert bool(mx.array_equal(logits_of(folder, (0, 6), quick=False, tokens=40), before))


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
