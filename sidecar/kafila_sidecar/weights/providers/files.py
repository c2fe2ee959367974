"""Which of a repository's safetensors files are the checkpoint, as lenient as those who write and read such folders.

Beside the files that count lie indexes of sets that are not there any more, the same weights a second time in another
precision (`model.fp16.safetensors`), or as one file and as shards. Pure.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafila_sidecar.errors import NotFound, Refused

WEIGHT_FILE = re.compile(r"[A-Za-z0-9][\w.-]{0,200}\.safetensors", re.ASCII)
ONE_FILE = "model.safetensors"
_SHARD = re.compile(r"model(?P<before>\.\w+)?-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<after>\.\w+)?\.safetensors")
_VARIANT = re.compile(r"model\.(?P<variant>\w+)\.safetensors")


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """The files, sorted. `tensors`: where the index sees each tensor, which decides if two files hold one of a name."""

    names: tuple[str, ...]
    tensors: Mapping[str, str] = field(default_factory=dict)


def choose(model: str, listed: Collection[str], index: Mapping[str, Any] | None) -> WeightFiles:
    """`listed`: names of all files at the top of the repository; `index`: that of the plain names, if there is one.

    Raises Refused for a repository without such weights or with an improper name, NotFound for one that lacks a part.
    """
    indexed = {} if index is None else mapped(model, index)
    wanted = set(indexed.values())
    missing = sorted(wanted - set(listed))
    if wanted and not missing:
        return WeightFiles(tuple(sorted(wanted)), indexed)
    names = whole_set(name for name in listed if WEIGHT_FILE.fullmatch(name))
    if names:
        return WeightFiles(names)
    if missing:
        raise NotFound(f"{model} has no {missing[0]}, which its index lists: copy or upload it again as a whole")
    incomplete = sorted(name for name in listed if _SHARD.fullmatch(name))
    if incomplete:
        raise NotFound(
            f"{model} has {incomplete[0]}, but not all parts of that set: copy or upload it again as a whole"
        )
    raise Refused(f"{model} has no safetensors weights: choose a checkpoint in that format")


def mapped(model: str, index: Mapping[str, Any]) -> dict[str, str]:
    """The index's "weight_map". Raises Refused for one with improper names; one that is no map counts as none."""
    found = index.get("weight_map")
    if not isinstance(found, dict):
        return {}
    for name in found.values():
        if not isinstance(name, str) or not WEIGHT_FILE.fullmatch(name):
            raise Refused(f"{model} has a weight file with the improper name {str(name)[:80]!r}")
    return found


def whole_set(names: Iterable[str]) -> tuple[str, ...]:
    """The set to take where no index decides: the plain names before a variant, one file before shards."""
    singles: dict[str, str] = {}
    shards: dict[tuple[str, int], dict[int, str]] = {}
    for name in names:
        if name == ONE_FILE:
            singles[""] = name
        elif single := _VARIANT.fullmatch(name):
            singles[single["variant"]] = name
        elif shard := _SHARD.fullmatch(name):
            variant = (shard["before"] or shard["after"] or ".")[1:]
            shards.setdefault((variant, int(shard["count"])), {})[int(shard["number"])] = name
    sets: dict[tuple[str, int], tuple[str, ...]] = {(variant, 0): (name,) for variant, name in singles.items()}
    for (variant, count), parts in shards.items():
        if parts.keys() == set(range(1, count + 1)):
            sets[variant, count] = tuple(parts[number] for number in sorted(parts))
    return sets[min(sets)] if sets else ()
