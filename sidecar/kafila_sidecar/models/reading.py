"""From a checkpoint's config.json to its family, with everything in it checked that would change what is computed."""

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kafila_sidecar.errors import Refused
from kafila_sidecar.models.family import Family, Tying, text_of
from kafila_sidecar.models.foreign import refuse_foreign_code
from kafila_sidecar.models.keys import HARMLESS, OUTER_HARMLESS, check_keys
from kafila_sidecar.models.offered import ALIASES, FAMILIES
from kafila_sidecar.models.quantisation import Quantisation, quantisation_of
from kafila_sidecar.models.read_keys import READ_KEYS
from kafila_sidecar.models.spelling import with_one_rope

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a configuration says, in the one spelling that the architecture's code reads.

    tied: whether embedding and unembedding are one matrix. quantisation: how the weights are packed, None for 16 or 32
    bits. most_tokens: the length up to which the architecture's code is right, None for any length.
    """

    family: Family
    config: Mapping[str, Any]
    tied: bool
    quantisation: Quantisation | None
    most_tokens: int | None = None

    def holds(self, tensor: str, *, start: int, end: int, head: bool) -> bool:
        """Whether a stage with the blocks [start, end) needs this tensor of the checkpoint."""
        return self.family.holds(tensor, start=start, end=end, head=head, tied=self.tied)

    def canonical(self) -> dict[str, Any]:
        """A copy of the configuration, which the architecture's code may write to."""
        return copy.deepcopy(dict(self.config))


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a checkpoint's config.json.

    Raises: Refused, for an architecture or quantisation that no test has shown exact, or code of the checkpoint's own.
    """
    model_type = config.get("model_type")
    refuse_foreign_code(config, "config.json")
    family = FAMILIES.get(ALIASES.get(str(model_type), str(model_type)))
    if family is None:
        offered = ", ".join(sorted(FAMILIES))
        raise Refused(f"models of type {model_type!r} are not offered: choose one of the architectures {offered}")
    quantisation_of(config)
    return family


def read(config: Mapping[str, Any], tensors: Collection[str]) -> Reading:
    """The reading of a checkpoint's config.json.

    tensors: the names of its tensors, which decide where the configuration is silent.

    Raises: Refused, as `family_of`; for a key that the architecture's code doesn't read and that isn't known to be
    harmless; and where configuration and tensors disagree, naming the key.
    """
    family = family_of(config)
    canonical: Any = copy.deepcopy(dict(config))
    text: Any = text_of(canonical)
    outer_keys, text_keys = (frozenset(keys.split()) for keys in READ_KEYS[family.module])
    with_one_rope(text, family.module, text_keys)
    if text is not canonical:
        _bring_in(canonical, text, outer_keys, text_keys)
        check_keys(canonical, outer_keys | OUTER_HARMLESS, family.module, "config.json")
    where = "config.json" if text is canonical else "config.json's text_config"
    most_tokens = check_keys(text, text_keys, family.module, where)
    tied = family.tied(config, tensors)
    if family.tying is Tying.CONFIGURED:
        text["tie_word_embeddings"] = tied
    return Reading(family, canonical, tied, quantisation_of(config), most_tokens)


def _bring_in(
    outer: dict[str, Any], text: dict[str, Any], outer_keys: frozenset[str], text_keys: frozenset[str]
) -> None:
    """What stands beside `text_config` and in it has to agree; what the code reads at one place is put there."""
    for key in (outer_keys & text_keys) - {"model_type"}:
        if key not in outer and key in text:
            outer[key] = text[key]
    for key in [key for key in outer if key in text_keys - HARMLESS]:
        if text.get(key, outer[key]) != outer[key] and key != "tie_word_embeddings":
            raise Refused(f"config.json says {key} = {outer[key]!r}, but {text[key]!r} in its text_config")
        text.setdefault(key, outer[key])
        if key not in outer_keys:
            del outer[key]


def dtype_of(config: Mapping[str, Any]) -> str:
    """What config.json says of the element type of hidden states: "float32", "bfloat16" or "float16".

    Raises: Refused for any other.
    """
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    if dtype not in ITEM_BYTES:
        raise Refused(f"the checkpoint's weights are {dtype}: choose one in bfloat16, float16 or float32")
    return dtype
