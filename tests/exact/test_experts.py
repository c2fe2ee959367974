"""Models with experts on a processor."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from kafila_sidecar.errors import Refused
from tests.exact.shards import load_shard
from tests.support.tiny import tiny_folder

pytestmark = [
    pytest.mark.mlx,
    pytest.mark.skipif(mx.default_device() != mx.Device(mx.cpu), reason="a GPU computes them in 16 bits too"),
]

EXPERTS: dict[str, Any] = {
    **{"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "decoder_sparse_step": 1},
    **{"mlp_only_layers": [], "norm_topk_prob": True},
}


def test_stage_when_its_experts_have_16_bits_then_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model", model_type="qwen3_moe", config=EXPERTS, dtype="bf16")
    with pytest.raises(Refused, match=r"experts in 16 bits.*--quantize 4 or 8"):
        load_shard(folder, 0, 3, True)


@pytest.mark.parametrize(("dtype", "bits"), [("f32", 0), ("bf16", 4), ("bf16", 8)])
def test_stage_when_its_experts_have_32_bits_or_are_packed_while_loading_then_it_computes(
    tmp_path: Path, dtype: str, bits: int
) -> None:
    folder = tiny_folder(tmp_path / "model", model_type="qwen3_moe", config=EXPERTS, dtype=dtype)
    shard = load_shard(folder, 0, 3, True, bits=bits)
    assert shard.embed_and_blocks(1, [1, 2, 3]).tokens == 3
    shard.close()
