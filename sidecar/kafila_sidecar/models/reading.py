"""From a checkpoint's config.json to its family, with everything in it checked that would change what is computed."""

from collections.abc import Mapping
from typing import Any

from kafila_sidecar.errors import Refused
from kafila_sidecar.models.family import Family
from kafila_sidecar.models.foreign import refuse_foreign_code
from kafila_sidecar.models.offered import FAMILIES
from kafila_sidecar.models.quantisation import quantisation_of

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a checkpoint's config.json.

    Raises: Refused, for an architecture or quantisation that no test has shown exact, or code of the checkpoint's own.
    """
    model_type = config.get("model_type")
    refuse_foreign_code(config, "config.json")
    family = FAMILIES.get(str(model_type))
    if family is None:
        offered = ", ".join(sorted(FAMILIES))
        raise Refused(f"models of type {model_type!r} are not offered: choose one of the architectures {offered}")
    quantisation_of(config)
    return family


def dtype_of(config: Mapping[str, Any]) -> str:
    """What config.json says of the element type of hidden states: "float32", "bfloat16" or "float16".

    Raises: Refused for any other.
    """
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    if dtype not in ITEM_BYTES:
        raise Refused(f"the checkpoint's weights are {dtype}: choose one in bfloat16, float16 or float32")
    return dtype
