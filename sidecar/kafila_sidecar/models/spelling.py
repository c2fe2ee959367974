"""From the spellings that configurations come in to the one that an architecture's code reads.

Newer versions of transformers write all that concerns rotary positions into `rope_parameters`, for each kind of layer
where they differ; mlx-lm's code mostly reads `rope_theta` and `rope_scaling`, some of it only the new spelling.
"""

import math
from collections.abc import Mapping
from typing import Any

from kafila_sidecar.errors import Refused

NATIVE = frozenset({"glm_moe_dsa", "ministral3", "mistral3", "mistral4", "qwen3_5", "qwen3_5_moe", "minimax_m3_vl"})
"""Modules that read `rope_parameters`, and neither `rope_theta` nor `rope_scaling` beside it."""
BY_TYPE = frozenset({"gemma4", "gemma4_text", "laguna", "mellum", "spark2_5"})
"""Modules that read `rope_parameters` for each kind of layer."""
TWO_THETAS = frozenset({"gemma3", "gemma3_text", "gemma3n"})
"""Modules that read `rope_local_base_freq` for layers with a window."""
KINDS = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention")
ROPE_KEYS = frozenset(
    {
        *("type", "rope_type", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
        *("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "short_factor", "long_factor", "mrope_section"),
        *("mrope_interleaved", "finetuned", "partial_rotary_factor", "rope_theta", "alpha", "llama_4_scaling_beta"),
    }
)
"""Keys of a rope's description that are read, or change nothing for text."""


def with_one_rope(text: dict[str, Any], module: str, read: frozenset[str]) -> None:
    """Rewrites what `text` (a text model's configuration) says of rotary positions, in place.

    Raises: Refused where that can't be done exactly, naming the key.
    """
    if module in BY_TYPE:
        for kind, rope in _mapping(text, "rope_parameters").items():
            _check_rope(rope, f"rope_parameters.{kind}", module)
        return
    if module in NATIVE:
        _into_parameters(text, module)
    else:
        _out_of_parameters(text, module, read)
    for key in ("rope_parameters", "rope_scaling"):
        if text.get(key) is not None:
            _check_rope(text[key], key, module)


def _into_parameters(text: dict[str, Any], module: str) -> None:
    rope = dict(_mapping(text, "rope_parameters"))
    for key, value in _mapping(text, "rope_scaling").items():
        _put(rope, key, value, "rope_scaling")
    text.pop("rope_scaling", None)
    for key in ("rope_theta", "partial_rotary_factor"):
        if text.get(key) is not None:
            _put(rope, key, text.pop(key), key)
    if rope:
        text["rope_parameters"] = rope


def _out_of_parameters(text: dict[str, Any], module: str, read: frozenset[str]) -> None:
    rope = dict(_mapping(text, "rope_parameters"))
    text.pop("rope_parameters", None)
    if not rope:
        return
    if set(rope) <= set(KINDS):
        rope = _one_of_kinds(text, rope, module)
    if "rope_theta" in rope:
        _move(text, rope, "rope_theta")
    if "partial_rotary_factor" in rope:
        _move(text, rope, "partial_rotary_factor")
        if "partial_rotary_factor" not in read and text["partial_rotary_factor"] in (1, 1.0):
            del text["partial_rotary_factor"]
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default" and set(rope) <= {"rope_type", "type", "mrope_section", "mrope_interleaved"}:
        return
    if "rope_scaling" not in read:
        raise Refused(f"config.json says rope_parameters.rope_type = {kind!r}, which mlx-lm's code for {module} lacks")
    if text.get("rope_scaling") not in (None, rope):
        raise Refused("config.json says one thing in rope_parameters and another in rope_scaling")
    text["rope_scaling"] = rope


def _one_of_kinds(text: dict[str, Any], ropes: Mapping[str, Any], module: str) -> dict[str, Any]:
    """One description for all kinds of layers, and `rope_local_base_freq` where the code has two."""
    full = _dict(ropes.get("full_attention", next(iter(ropes.values()))), "rope_parameters")
    others = {kind: _dict(rope, "rope_parameters") for kind, rope in ropes.items() if kind != "full_attention"}
    if module in TWO_THETAS:
        local = others.pop("sliding_attention", {})
        if local.get("rope_type", "default") != "default" or set(local) - {"rope_type", "rope_theta"}:
            raise Refused("config.json says more than rope_theta in rope_parameters.sliding_attention")
        if "rope_theta" in local:
            _put(text, "rope_local_base_freq", local["rope_theta"], "rope_parameters.sliding_attention")
    if any(rope != full for rope in others.values()):
        raise Refused(
            f"config.json says different things in rope_parameters for different layers, "
            f"which mlx-lm's code for {module} doesn't read"
        )
    return full


def _move(text: dict[str, Any], rope: dict[str, Any], key: str) -> None:
    _put(text, key, rope.pop(key), f"rope_parameters.{key}")


def _put(target: dict[str, Any], key: str, value: Any, source: str) -> None:
    if target.get(key, value) not in (None, value):
        raise Refused(f"config.json says {key} = {target[key]!r}, but {source} = {value!r}")
    target[key] = value


def _check_rope(rope: Any, where: str, module: str) -> None:
    for key, value in _dict(rope, where).items():
        if key in ROPE_KEYS or value is None:
            continue
        if key == "attention_factor" and _is_usual(value, rope):
            continue
        if key == "truncate" and (value is True or module == "gpt_oss"):
            continue
        raise Refused(f"config.json says {where}.{key} = {value!r}, which mlx-lm's code for {module} doesn't read")


def _is_usual(attention_factor: Any, rope: Mapping[str, Any]) -> bool:
    """Whether yarn's gain is the one that follows from its factor (YaRN, equation 22), which is what the code takes."""
    factor = rope.get("factor")
    if not isinstance(factor, int | float) or not isinstance(attention_factor, int | float) or factor < 1:
        return False
    return math.isclose(attention_factor, 0.1 * math.log(factor) + 1, rel_tol=1e-6) and "mscale" not in rope


def _mapping(text: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {} if text.get(key) is None else _dict(text[key], key)


def _dict(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Refused(f"config.json says {where} = {value!r}, where a description of rotary positions is needed")
    return dict(value)
