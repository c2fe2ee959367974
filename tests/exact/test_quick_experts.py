"""Prompts through experts on a processor: each matrix by all its tokens at once. Steps stay the architecture's own."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.nn.layers.base import Module
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchGLU, SwitchLinear, SwitchMLP

from kafila_sidecar.models.offered import FAMILIES
from kafila_sidecar.models.quantisation import quantisation_of
from kafila_sidecar.models.reading import Reading
from kafila_sidecar.runtime.footprint import slices_bytes
from kafila_sidecar.runtime.probe.synthetic import CheckpointShape
from kafila_sidecar.runtime.shard.arrays import unpack
from kafila_sidecar.runtime.shard.making import widening
from kafila_sidecar.runtime.shard.making.loading import read_config
from kafila_sidecar.runtime.shard.making.quick import quicken_prompts
from kafila_sidecar.runtime.shard.making.quick_experts import Rows
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from tests.exact.candidates import TWELVE
from tests.exact.proof import model_of, shard, write_checkpoint
from tests.exact.shapes import BLOCKS, VOCAB, tiny_config
from tests.exact.shards import RingOfShards
from tests.exact.test_experts import EXPERTS as FOUR_EXPERTS
from tests.exact.test_quantised import MODES
from tests.support.tiny import SHAPE, tiny_folder

pytestmark = [
    pytest.mark.mlx,
    pytest.mark.skipif(mx.default_device() != mx.Device(mx.cpu), reason="a GPU computes prompts as they are"),
]

EXPERTS = (
    *("Klear", "afmoe", "bailing_hybrid", "bailing_moe", "bailing_moe_linear", "bailing_moe_v3", "deepseek"),
    *("deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5_moe", "exaone_moe", "gemma4", "gemma4_text"),
    *("glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "gpt_oss", "granitemoe", "granitemoehybrid", "hunyuan", "jamba"),
    *("kimi_k25", "kimi_linear", "kimi_vl", "laguna", "lfm2_moe", "llama4", "longcat_flash", "longcat_flash_ngram"),
    *("mellum", "mimo_v2_flash", "minimax", "minimax_m3_vl", "mistral4", "mixtral", "nemotron_h", "olmoe", "phimoe"),
    *("phixtral", "qwen2_moe", "qwen3_5", "qwen3_5_moe", "qwen3_moe", "qwen3_next", "qwen3_vl_moe", "solar_open"),
    "step3p5",
)
"""The architectures whose tiny models have experts."""
OFTEN = {*TWELVE, "mixtral", "olmoe", "phimoe", "phixtral", "qwen3_moe", "granitemoe", "minimax_m3_vl"}
GEMMAS_EXPERTS = {"enable_moe_block": True, "top_k_experts": 2}
PACKED_HEADS = {"kv_lora_rank": 32, "qk_nope_head_dim": 32}  # wide enough for a group of packed numbers
MORE: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("gemma4", "gemma4_text"), GEMMAS_EXPERTS),
    **dict.fromkeys(("deepseek_v3", "glm4_moe_lite", "kimi_linear"), PACKED_HEADS),
}
PACKINGS: dict[str, dict[str, Any]] = {"f32": {}, "4 bits": MODES["affine 4"]}
TEXT = [(7 * i) % (VOCAB - 6) + 3 for i in range(40)]
ROUNDING = 1e-4  # of the largest number: f32 sums in another order, through all blocks
FEW = 8  # tokens, guesses among them, of a step at most
MANY = FEW + 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[Rows]:
    """The rows of each layer of experts that was computed the quick way."""
    seen: list[Rows] = []
    chosen = Rows.chosen

    def see(indices: Any, shape: Any) -> Rows:
        seen.append(chosen(indices, shape))
        return seen[-1]

    monkeypatch.setattr(Rows, "chosen", see)
    return seen


def both(folder: Path, config: dict[str, Any], **packing: Any) -> list[Shard]:
    """The whole of a tiny model as a stage, as it is and with quick prompts."""
    mx.random.seed(3)
    write_checkpoint(folder, config, **packing)
    module = str(config["model_type"])
    reading = Reading(FAMILIES[module], config, False, quantisation_of(read_config(folder)))
    return [shard(reading, folder, 0, BLOCKS, head=True, quick=quick) for quick in (False, True)]


def same_bits(plain: HiddenState, quick: HiddenState) -> bool:
    return bytes(plain.payload) == bytes(quick.payload)


def difference(plain: HiddenState, quick: HiddenState) -> float:
    """The largest, as a share of the largest number."""
    one, other = unpack(plain).astype(mx.float32), unpack(quick).astype(mx.float32)
    return float(mx.abs(one - other).max() / mx.abs(one).max())


def test_list_when_looked_at_then_it_has_every_offered_architecture_with_experts() -> None:
    models = {module: model_of(module, tiny_config(module, **MORE.get(module, {}))) for module in FAMILIES}
    assert {name for name, model in models.items() if any(map(is_of_experts, model.modules()))} == set(EXPERTS)


def is_of_experts(module: Any) -> bool:
    return isinstance(module, SwitchLinear | QuantizedSwitchLinear)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(
    "module", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.long) for name in EXPERTS]
)
def test_chunk_when_long_then_within_rounding_and_steps_and_runs_are_the_architectures_own(
    module: str, packing: str, tmp_path: Path, quick: list[Rows]
) -> None:
    stages = both(tmp_path / "model", tiny_config(module, **MORE.get(module, {})), **PACKINGS[packing])
    for tokens in range(1, MANY):
        assert same_bits(*(one.embed_and_blocks(tokens, TEXT[:tokens]) for one in stages))
    if stages[0].takes_rows:
        for sequences, tokens in ((2, 1), (8, 1), (2, FEW), (8, FEW)):
            rows = [(100 * tokens + 10 * sequences + row, TEXT[row : row + tokens]) for row in range(sequences)]
            assert all(map(same_bits, *(one.embed_rows(rows) for one in stages)))
    assert not quick
    for sequence, tokens in enumerate((MANY, len(TEXT)), 1000):
        assert difference(*(one.embed_and_blocks(sequence, TEXT[:tokens]) for one in stages)) <= ROUNDING
        assert quick
        quick.clear()
    for one in stages:
        one.close()


@pytest.mark.parametrize("tokens", [FEW, MANY])
@pytest.mark.parametrize("chosen", [2, 8])
def test_chunk_when_of_eight_or_nine_tokens_then_eight_are_a_step_whether_mlx_lm_sorts_them_or_not(
    chosen: int, tokens: int, tmp_path: Path, quick: list[Rows]
) -> None:
    """Sorted by mlx-lm from 64 choices on: those of eight tokens that choose eight experts each."""
    config = tiny_config("qwen3_moe", num_experts=16, num_experts_per_tok=chosen)
    stages = both(tmp_path / "model", config, **PACKINGS["4 bits"])
    states = [one.embed_and_blocks(1, TEXT[:tokens]) for one in stages]
    assert {len(rows.experts) for rows in quick} == (set() if tokens == FEW else {tokens * chosen})
    assert same_bits(*states) if tokens == FEW else difference(*states) <= ROUNDING


def test_run_when_of_several_long_prompts_then_as_the_architectures_own_code(tmp_path: Path, quick: list[Rows]) -> None:
    stages = both(tmp_path / "model", tiny_config("olmoe"))
    rows = [(row, TEXT[row : row + 20]) for row in range(2)]
    assert all(map(same_bits, *(one.embed_rows(rows) for one in stages)))
    assert not quick


@pytest.mark.parametrize("cuts", [(0, 3, 6), (0, 1, 2, 6)], ids=str)
@pytest.mark.parametrize(("dtype", "bits"), [("f32", None), ("bf16", 4)])
def test_ring_when_prompts_are_quick_then_the_same_bits_at_every_cut(
    dtype: str, bits: int | None, cuts: tuple[int, ...], tmp_path: Path, quick: list[Rows]
) -> None:
    folder = tiny_folder(tmp_path / "model", model_type="qwen3_moe", config=FOUR_EXPERTS, dtype=dtype, bits=bits)
    rings = [RingOfShards(folder, places, quick=True) for places in ((0, 6), cuts)]
    whole, cut = (ring.step(1, TEXT) for ring in rings)
    assert bool(mx.array_equal(whole, cut))
    assert len(quick) == 2 * 6 * 3
    for ring in rings:
        ring.close()


@pytest.mark.parametrize("packing", [None, "affine 4", "mxfp4", "mxfp8"])
def test_tokens_when_blocks_are_made_up_then_they_go_to_all_experts(packing: str | None, quick: list[Rows]) -> None:
    """As those of real ones do; with routers whose rows are alike a machine would seem quicker than it is."""
    mx.random.seed(5)
    config = {"model_type": "qwen3_moe", **SHAPE, **FOUR_EXPERTS, "hidden_size": 512, "num_experts": 16}
    made_up = CheckpointShape(config | ({"quantization": MODES[packing]} if packing else {}), "float32")
    stage = made_up.stage(end=2, head=False)
    stage.run_blocks(1, made_up.state(batch=1, tokens=256))
    stage.close()
    assert len(quick) == 2 * 3
    for rows in quick:
        counts = np.bincount(rows.experts, minlength=16)
        assert counts.min() > 0
        assert counts.max() < len(rows.experts) / 4


KINDS: dict[str, Any] = {"gated": SwitchGLU, "plain": SwitchMLP}


def layer(kind: str, form: str, dtype: mx.Dtype, *, bias: bool = True, experts: int = 6) -> Any:
    mx.random.seed(5)
    made = KINDS[kind](128, 192, experts, bias=bias)
    for part in made.modules():
        if bias and is_of_experts(part):
            part.bias = 0.1 * mx.random.normal(part.bias.shape)
    made.set_dtype(dtype)
    if form in MODES:
        for name, part in list(made.items()):
            if is_of_experts(part):
                setattr(made, name, part.to_quantized(**MODES[form]))
    mx.eval(made.parameters())
    return made


def as_doubles(array: mx.array) -> "np.ndarray[Any, Any]":
    return np.array(array.astype(mx.float32)).astype(np.float64)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16], ids=str)
@pytest.mark.parametrize("form", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_experts_when_quick_then_no_farther_from_the_exact_result_and_of_the_same_form(
    kind: str, form: str, dtype: mx.Dtype, quick: list[Rows]
) -> None:
    module = layer(kind, form, dtype)
    x = mx.random.normal((1, 20, 128)).astype(dtype)
    indices = mx.random.randint(0, 5, (1, 20, 3))  # nobody chooses the last
    plain = module(x, indices)
    exact = as_doubles(in_f32(module, kind)(x.astype(mx.float32), indices))
    quicken_prompts([module])
    through = module(x, indices)
    assert quick
    assert (through.shape, through.dtype) == (plain.shape, plain.dtype)
    far = np.abs(as_doubles(plain) - exact).mean()
    assert np.abs(as_doubles(through) - exact).mean() <= 1.05 * far + 1e-6 * np.abs(exact).mean()


def test_experts_when_their_scales_are_of_another_element_type_than_the_states_then_the_architectures_own_type() -> (
    None
):
    module = layer("gated", "affine 4", mx.float32)
    x, indices = mx.random.normal((1, 20, 128)).astype(mx.bfloat16), mx.random.randint(0, 6, (1, 20, 3))
    plain = module(x, indices)
    quicken_prompts([module])
    assert plain.dtype == module(x, indices).dtype == mx.float32


def in_f32(module: Any, kind: str) -> Any:
    """The same layers of unpacked weights."""
    wide = layer(kind, "unpacked", mx.float32)
    for name, part in list(module.items()):
        if is_of_experts(part):
            scales, biases = part.scales, part.get("biases")
            if biases is not None:
                scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)
            packing = {"group_size": part.group_size, "bits": part.bits, "mode": part.mode}
            wide[name].weight = mx.dequantize(part.weight, scales, biases, dtype=mx.float32, **packing)
            wide[name].bias = part.bias.astype(mx.float32)
    return wide


def test_experts_when_a_matrix_has_several_slices_then_the_product_of_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = layer("gated", "affine 4", mx.bfloat16)
    quicken_prompts([module])
    x, indices = mx.random.normal((1, 20, 128)).astype(mx.bfloat16), mx.random.randint(0, 6, (1, 20, 3))
    whole = as_doubles(module(x, indices))
    monkeypatch.setattr(widening, "SLICE_WEIGHTS", 7 * 128)
    assert np.abs(as_doubles(module(x, indices)) - whole).max() <= np.abs(whole).max() / 128


class ExpertLayer(Module):
    """A block of one layer of experts."""

    def __init__(self, experts: Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.experts = experts

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:
        product: mx.array = self.experts(mx.expand_dims(x, (-2, -3)), indices)
        return product


@pytest.mark.parametrize("form", ["unpacked", "affine 8", "affine 4", "affine 3", "mxfp4", "nvfp4", "mxfp8"])
def test_experts_when_quick_then_they_take_no_more_than_is_planned(form: str) -> None:
    mx.random.seed(5)
    experts, chosen, tokens, inputs, outputs = 6, 2, 16, 2048, 3072
    module: Any = SwitchLinear(inputs, outputs, experts, bias=False)
    if form in MODES:
        module.set_dtype(mx.bfloat16)
        module = module.to_quantized(**MODES[form])
    block = ExpertLayer(module)
    quicken_prompts([block])
    x, indices = mx.zeros((1, tokens, inputs), mx.bfloat16), mx.random.randint(0, experts, (1, tokens, chosen))
    mx.eval(module.parameters(), x, indices)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    mx.eval(block(x, indices))
    states_bytes = tokens * chosen * (inputs + 6 * outputs) * 4
    sliced = slices_bytes(inputs * outputs) if form in MODES else 0
    assert mx.get_peak_memory() - before <= sliced + states_bytes
