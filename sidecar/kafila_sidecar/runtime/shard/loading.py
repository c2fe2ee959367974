"""From a checkpoint's files to a Model that holds only our part of it. MLX thread only."""

import importlib
import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.quantized import quantize
from mlx.utils import tree_flatten
from mlx_lm.utils import infer_quant_config

from kafila_sidecar.errors import Refused
from kafila_sidecar.runtime.memory import check_room
from kafila_sidecar.runtime.shard.families import Family, family_of, quantisation_of
from kafila_sidecar.runtime.shard.partial import module_at, strip

Weights = dict[str, mx.array]


def read_config(folder: Path) -> dict[str, Any]:
    """The checkpoint's config.json.

    Raises: Refused when it is absent or no JSON object.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"the checkpoint's config.json can't be read: {error}") from error
    if not isinstance(config, dict):
        raise Refused("the checkpoint's config.json is no JSON object")
    return config


def build(config: Mapping[str, Any]) -> tuple[Family, Module]:
    """The architecture's own Model with lazy random arrays, which take no memory until they are evaluated."""
    family = family_of(config)
    architecture = importlib.import_module(f"mlx_lm.models.{family.module}")
    try:
        return family, architecture.Model(architecture.ModelArgs.from_dict(dict(config)))
    except (TypeError, ValueError, KeyError, AssertionError) as error:
        raise Refused(f"config.json doesn't describe a {family.model_type} model: {error}") from error


def load_part(
    config: Mapping[str, Any], files: Mapping[Path, Collection[str]], *, start: int, end: int, head: bool
) -> tuple[Family, Module]:
    """The Model with the blocks [start, end), and embedding, norm and unembedding if `head`, evaluated.

    files: which tensors are to be taken from which safetensors file; what else stands in a file (a hole, in a sparse
    one) becomes lazy zeros, that `sanitize()` may handle and nobody evaluates.

    Raises: Refused when a tensor of ours is missing or doesn't fit the configuration, or all of them the memory.
    """
    family, model = build(config)
    if not 0 <= start <= end <= len(model.layers) or (head and start != 0):
        raise Refused(f"blocks {start} to {end} are no part of a model of {len(model.layers)} blocks")

    def ours(name: str) -> bool:
        return family.holds(name, start=start, end=end, head=head, tied=family.tied(config))

    weights = _sanitised(model, _read(files, ours))
    weights = {name: array for name, array in weights.items() if ours(name)}
    check_room(sum(array.nbytes for array in weights.values()))
    strip_absent(model, family, start=start, end=end, head=head)
    _quantise(model, config, weights)
    _fill(model, weights)
    return family, model


def weight_bytes(model: Any) -> int:
    """Bytes of all parameters that the model holds."""
    arrays: Any = tree_flatten(model.parameters())
    return sum(array.nbytes for _, array in arrays)


def _read(files: Mapping[Path, Collection[str]], ours: Callable[[str], bool]) -> Weights:
    weights: Weights = {}
    for path, names in files.items():
        held = set(names)
        arrays: Weights = mx.load(str(path), format="safetensors")  # type: ignore[assignment]
        lacking = sorted(name for name in arrays if ours(name) and name not in held)
        if lacking or not held <= arrays.keys():
            lost = (lacking or sorted(held - arrays.keys()))[0]
            raise Refused(f"the weights {lost!r} of this member's part are not in {path.name}: fetch them again")
        for name, array in arrays.items():
            weights[name] = array if name in held else mx.zeros(array.shape, array.dtype)
    return weights


def _sanitised(model: Module, weights: Weights) -> Weights:
    return model.sanitize(weights) if hasattr(model, "sanitize") else weights


def strip_absent(model: Any, family: Family, *, start: int, end: int, head: bool) -> None:
    for index, block in enumerate(model.layers):
        if not start <= index < end:
            strip(block)
    for path in () if head else (family.embedding, family.norm, family.unembedding):
        if path in dict(model.named_modules()):
            strip(module_at(model, path))


def _quantise(model: Module, config: Mapping[str, Any], weights: Weights) -> None:
    """Gives the modules whose weights come with scales MLX's quantised form, each as its own entry or shapes say."""
    quantisation = quantisation_of(config)
    if quantisation is None:
        return

    def form(path: str, module: Module) -> Any:
        if f"{path}.scales" not in weights:
            return False
        return quantisation[path] if path in quantisation else infer_quant_config(path, module, weights)

    quantize(model, group_size=quantisation["group_size"], bits=quantisation["bits"], class_predicate=form)


def _fill(model: Module, weights: Weights) -> None:
    """Puts the weights in and evaluates them block by block: what `sanitize()` built on is freed as we go."""
    model.eval()
    try:
        model.load_weights(list(weights.items()), strict=True)
    except ValueError as error:
        raise Refused(f"the checkpoint's weights don't fit its config.json: {error}") from error
    weights.clear()
    for part in (*model.layers, model):
        mx.eval(part.parameters())
