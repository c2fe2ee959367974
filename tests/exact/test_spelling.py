"""Configurations in other spellings: the same logits, or refused by the key's name. Never other logits."""

import copy
import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafila_sidecar.errors import Refused
from kafila_sidecar.models.family import text_of
from kafila_sidecar.models.offered import FAMILIES
from kafila_sidecar.models.read_keys import READ_KEYS
from kafila_sidecar.models.reading import read
from kafila_sidecar.runtime.shard.making.building import Built, built_from, flat
from tests.exact.proof import model_of, telling
from tests.exact.shapes import tiny_config

pytestmark = pytest.mark.mlx

FAMILY_NAMES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "mixtral", "phi3", "olmo3", "granite", "qwen3_moe")
SCALINGS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"rope_type": "linear", "factor": 4.0},
    {
        **{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "original_max_position_embeddings": 32,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
)
NUMBERS = ("rope_theta", "rms_norm_eps", "num_key_value_heads", "partial_rotary_factor", "query_pre_attn_scalar")
TOKENS = mx.array([[(7 * i) % 90 + 3 for i in range(40)]])


def logits(model: Any, weights: list[tuple[str, mx.array]]) -> mx.array:
    model.load_weights(weights)
    answer: mx.array = model(TOKENS)
    mx.eval(answer)
    return answer


def weights_of(module: str, config: dict[str, Any]) -> list[tuple[str, mx.array]]:
    mx.random.seed(5)
    return [(name, telling(name, array)) for name, array in flat(model_of(module, config))]


def move_rope(config: dict[str, Any]) -> dict[str, Any]:
    """As transformers 5 writes it."""
    config = copy.deepcopy(config)
    rope = {"rope_type": "default", **(config.pop("rope_scaling", None) or {})}
    rope["rope_theta"] = config.pop("rope_theta")
    return config | {"rope_parameters": rope}


def outcome(config: dict[str, Any], names: list[str]) -> tuple[Built | None, str]:
    """The Model that a configuration describes, or why it is refused."""
    try:
        return built_from(read(config, names)), ""
    except Refused as refusal:
        return None, str(refusal)


def rename(config: dict[str, Any], key: str) -> dict[str, Any]:
    return {(f"the_{name}" if name == key else name): value for name, value in config.items()}


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    module=st.sampled_from(FAMILY_NAMES),
    scaling=st.sampled_from(SCALINGS),
    theta=st.sampled_from([500.0, 10000.0, 1e6]),
    way=st.sampled_from(["as it is", "moved", "renamed", "moved and contradicted", "with a stranger"]),
    key=st.sampled_from(NUMBERS),
)
def test_configuration_when_spelled_otherwise_then_the_same_logits_or_refused_by_name(
    module: str, scaling: dict[str, Any] | None, theta: float, way: str, key: str
) -> None:
    canonical = tiny_config(module, rope_theta=theta)
    if scaling is not None and module != "phi3" and "rope_scaling" in READ_KEYS[module][1]:
        canonical["rope_scaling"] = scaling
    variant = copy.deepcopy(canonical)
    if way.startswith("moved"):
        variant = move_rope(variant)
    if way == "moved and contradicted":
        variant["rope_theta"] = theta + 1
    if way == "renamed":
        variant = rename(variant, key)
    if way == "with a stranger":
        variant["attention_gain"] = 2.0
    weights = weights_of(module, canonical)
    built, refusal = outcome(variant, [name for name, _ in weights])
    if built is None:
        assert way not in ("as it is", "moved") or "rope" in refusal
        assert any(word in refusal for word in ("rope", "attention_gain", f"the_{key}", "doesn't describe"))
        return
    assert way not in ("moved and contradicted", "with a stranger")
    assert way != "renamed" or key not in canonical
    assert mx.array_equal(logits(built.model, weights), logits(model_of(module, canonical), weights))


@pytest.mark.parametrize("untied", [True, False])
@pytest.mark.parametrize("said", [True, False, None])
@pytest.mark.parametrize("module", ["llama", "qwen3", "qwen2", "granite"])
def test_tying_when_configuration_and_files_are_taken_together_then_never_by_a_librarys_default(
    module: str, said: bool | None, untied: bool
) -> None:
    config = tiny_config(module)
    del config["tie_word_embeddings"]
    if said is not None:
        config["tie_word_embeddings"] = said
    names = ["model.embed_tokens.weight", *(["lm_head.weight"] if untied else [])]
    if said is False and not untied:
        with pytest.raises(Refused, match="tie_word_embeddings"):
            read(config, names)
        return
    tied = read(config, names).tied
    assert tied is (said if said is not None else not untied)
    assert text_of(read(config, names).config)["tie_word_embeddings"] is tied


@pytest.mark.parametrize(
    ("module", "more", "named"),
    [
        ("llama", {"hidden_act": "gelu"}, "hidden_act"),
        ("llama", {"head_scale": 0.5}, "head_scale"),
        (
            "llama",
            {"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn", "attention_factor": 2.0}},
            "attention_f",
        ),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window"),
        ("phi3", {"hidden_act": "relu"}, "hidden_act"),
        ("gpt_oss", {"swiglu_limit": 9.0}, "swiglu_limit"),
        ("olmo3", {"rope_parameters": {"full_attention": {"rope_theta": 1.0}, "sliding_attention": {}}}, "rope_param"),
    ],
)
def test_key_when_the_code_does_not_read_it_then_refused_by_name(module: str, more: dict[str, Any], named: str) -> None:
    with pytest.raises(Refused, match=named):
        read(tiny_config(module) | more, ["lm_head.weight"])


def test_window_when_the_code_has_none_then_right_up_to_its_end() -> None:
    reading = read(tiny_config("phi3") | {"sliding_window": 2047}, ["lm_head.weight"])
    assert reading.most_tokens == 2047
    assert (
        read(tiny_config("qwen2") | {"sliding_window": 9, "use_sliding_window": False}, ["lm_head.weight"]).most_tokens
        is None
    )


def test_two_thetas_when_written_by_kind_of_layer_then_read() -> None:
    config = tiny_config("gemma3_text", rope_theta=1e6, rope_local_base_freq=5000.0)
    variant = {key: value for key, value in config.items() if key not in ("rope_theta", "rope_local_base_freq")}
    variant["rope_parameters"] = {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
    }
    read_back = dict(read(variant, ["lm_head.weight"]).config)
    assert (read_back["rope_theta"], read_back["rope_local_base_freq"]) == (1e6, 5000.0)


def test_every_family_when_its_own_tiny_configuration_is_read_then_taken(tmp_path: Path) -> None:
    for module in FAMILIES:
        config = json.loads(json.dumps(tiny_config(module)))
        read_keys = {key for part in READ_KEYS[module] for key in part.split()} | {"text_config"}
        own = {key: value for key, value in config.items() if key in read_keys}
        if "text_config" in own:
            own["text_config"] = {key: value for key, value in own["text_config"].items() if key in read_keys}
        assert read(own | {"model_type": module}, ["lm_head.weight"]).family.module == module
