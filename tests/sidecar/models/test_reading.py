"""What people run is read, as its publishers write it and as newer versions of transformers rewrite it."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kafila_sidecar.models.family import text_of
from kafila_sidecar.models.reading import read

PUBLISHED: dict[str, Any] = json.loads((Path(__file__).parent / "published.json").read_text())
"""Configurations as publishers write them; long lists are shortened."""
BOTH = ("model.embed_tokens.weight", "lm_head.weight")


@pytest.mark.parametrize("name", PUBLISHED)
def test_configuration_when_as_published_then_read(name: str) -> None:
    read(PUBLISHED[name], BOTH)


@pytest.mark.parametrize("name", PUBLISHED)
def test_configuration_when_it_names_code_of_the_repository_then_read_as_without(name: str) -> None:
    named = {"auto_map": {"AutoConfig": "configuration_evil.Config", "AutoModelForCausalLM": "a/b--evil.Model"}}
    config = {**copy.deepcopy(PUBLISHED[name]), **named}
    if text_of(config) is not config:
        config["text_config"] |= named
    plain, mapped = read(PUBLISHED[name], BOTH), read(config, BOTH)
    assert (mapped.family, mapped.tied, mapped.quantisation) == (plain.family, plain.tied, plain.quantisation)
    assert {**text_of(mapped.config), "auto_map": None} == {**text_of(plain.config), "auto_map": None}


@pytest.mark.parametrize("name", [name for name, config in PUBLISHED.items() if "rope_theta" in config])
def test_configuration_when_rewritten_by_newer_transformers_then_read_as_before(name: str) -> None:
    variant: Any = copy.deepcopy(PUBLISHED[name])
    rope = {"rope_type": "default", **(variant.pop("rope_scaling", None) or {})}
    rope["rope_type"] = rope.pop("type", rope["rope_type"])
    variant["rope_parameters"] = rope | {"rope_theta": variant.pop("rope_theta")}
    variant["dtype"] = variant.pop("torch_dtype", "bfloat16")
    before, after = (dict(text_of(read(config, BOTH).config)) for config in (PUBLISHED[name], variant))
    assert after["rope_theta"] == before["rope_theta"]
    scaling = before.get("rope_scaling") or {}
    if scaling.get("rope_type", scaling.get("type", "default")) != "default":
        assert {**after["rope_scaling"], "type": None, "rope_type": None} == {
            **scaling,
            "type": None,
            "rope_type": None,
        }
