from typing import Any

import pytest

from kafila_sidecar.errors import Refused
from kafila_sidecar.models.offered import FAMILIES
from kafila_sidecar.models.quantisation import quantisation_of, with_modelopt
from kafila_sidecar.models.reading import family_of

TENSORS = [
    "model.embed_tokens.weight",
    *(f"model.layers.{block}.mlp.up_proj.weight" for block in range(12)),
    "model.layers.3.self_attn.rotary_emb.inv_freq",
    "model.norm.weight",
    "lm_head.weight",
]


def held(start: int, end: int, *, head: bool, tied: bool) -> set[str]:
    return {name for name in TENSORS if FAMILIES["llama"].holds(name, start=start, end=end, head=head, tied=tied)}


@pytest.mark.parametrize("tied", [True, False])
def test_tensors_when_a_model_is_cut_then_each_on_exactly_one_stage(tied: bool) -> None:
    stages = [held(0, 1, head=True, tied=tied), held(1, 10, head=False, tied=tied), held(10, 12, head=False, tied=tied)]
    unwanted = {"model.layers.3.self_attn.rotary_emb.inv_freq"} | ({"lm_head.weight"} if tied else set())
    assert sum(map(len, stages)) == len(set().union(*stages))
    assert set().union(*stages) == set(TENSORS) - unwanted


def test_tensors_when_indices_share_a_beginning_then_not_confused() -> None:
    assert held(1, 2, head=False, tied=True) == {"model.layers.1.mlp.up_proj.weight"}


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "nobody_knows"},
        {},
        {"model_type": "nobody_knows", "auto_map": {"AutoModel": "evil.Model"}},
        {"model_type": "llama", "trust_remote_code": True},
        {"model_type": "llama", "model_file": "evil.py"},
        {"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4}},
        {"model_type": "llama", "quantization": {"group_size": 64, "bits": 7}},
        {"model_type": "llama", "quantization": {"group_size": 64, "bits": 4, "mode": "mxfp4"}},
        {
            "model_type": "llama",
            "quantization": {"group_size": 64, "bits": 4, "lm_head": {"group_size": 64, "bits": 9}},
        },
    ],
    ids=str,
)
def test_family_when_not_shown_exact_then_refused(config: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        family_of(config)


NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
"""As newer publishers write it into config.json."""
APART: dict[str, Any] = {
    "producer": {"name": "modelopt", "version": "0.23.0"},
    "quantization": {
        **{"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16},
        "exclude_modules": ["lm_head"],
    },
}
"""As they write it into hf_quant_config.json."""
CACHES_ALONE: dict[str, Any] = {"quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}


@pytest.mark.parametrize(
    "config", [{}, {"quantization_config": NVFP4}, {"text_config": {"quantization_config": NVFP4}}]
)
def test_quantisation_when_in_a_file_of_its_own_then_as_if_in_config_json(config: dict[str, Any]) -> None:
    read = quantisation_of(with_modelopt(config, APART))
    assert read == quantisation_of({"quantization_config": NVFP4})
    assert read is not None
    assert (read.group_size, read.bits, read.mode) == (16, 4, "nvfp4")


def test_quantisation_when_only_caches_were_packed_then_plain_weights() -> None:
    assert quantisation_of(with_modelopt({"model_type": "llama"}, CACHES_ALONE)) is None


def test_quantisation_when_converted_to_mlxs_since_then_the_files_left_behind_say_nothing() -> None:
    config = {"quantization": {"group_size": 64, "bits": 4}}
    assert with_modelopt(config, {"quantization": {"quant_algo": "FP8"}}) == config


@pytest.mark.parametrize("told", [APART, CACHES_ALONE], ids=str)
@pytest.mark.parametrize("other", [{"quant_method": "mxfp4"}, {"quant_method": "fp8"}], ids=str)
def test_quantisation_when_two_files_disagree_then_refused(told: dict[str, Any], other: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=r"config\.json and hf_quant_config\.json disagree"):
        with_modelopt({"quantization_config": other}, told)


def test_quantisation_when_mlxs_own_then_taken() -> None:
    entry = {"group_size": 64, "bits": 4, "lm_head": {"group_size": 64, "bits": 8}, "model.norm": False}
    read = quantisation_of({"quantization": entry, "quantization_config": entry})
    assert read is not None
    assert (read.group_size, read.bits, read.mode) == (64, 4, "affine")
    assert read.own("lm_head") == {"group_size": 64, "bits": 8}
    assert read.own("model.norm") is False
    assert read.own("model.layers.0.mlp.up_proj") is None
    assert quantisation_of({}) is None
