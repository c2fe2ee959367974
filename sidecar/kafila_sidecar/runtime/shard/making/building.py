"""The architecture's own Model, lazy, with what its family says of it. MLX thread only."""

import importlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.quantized import quantize
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import _takes_global_scale, infer_quant_config

from kafila_sidecar.errors import Refused
from kafila_sidecar.models.family import Family
from kafila_sidecar.models.quantisation import MADE_HERE_GROUP
from kafila_sidecar.models.reading import Reading, read
from kafila_sidecar.runtime.shard.making.rollcall import RollCall, call_roll
from kafila_sidecar.runtime.shard.partial import blocks_of

Weights = dict[str, mx.array]


@dataclass(frozen=True, slots=True)
class Built:
    """One Model. `roll`: which caches its blocks use, and what crosses a cut."""

    reading: Reading
    model: Module
    blocks: tuple[Any, ...]
    roll: RollCall

    @property
    def family(self) -> Family:
        return self.reading.family

    @property
    def count(self) -> int:
        return len(self.blocks)

    def caches(self) -> list[Any]:
        """The architecture's list of caches, new ones."""
        made: list[Any] = make_prompt_cache(self.model)
        return made

    def block_of(self, parameter: str) -> int | None:
        """The block that a parameter of the Model belongs to; None outside the blocks."""
        prefix = f"{self.family.blocks}."
        if not parameter.startswith(prefix):
            return None
        index = parameter[len(prefix) :].split(".", 1)[0]
        return int(index) if index.isdecimal() else None

    def is_of(self, parameter: str, start: int, end: int, *, head: bool) -> bool:
        """Whether a stage with the blocks [start, end) holds this parameter of the Model."""
        block = self.block_of(parameter)
        return head if block is None else start <= block < end

    def weight_bytes(self, start: int, end: int, *, head: bool) -> int:
        """Bytes of the parameters that a stage holds."""
        return sum(array.nbytes for name, array in flat(self.model) if self.is_of(name, start, end, head=head))

    def sanitised(self, weights: Weights) -> Weights:
        """The weights as the architecture's own code names and shapes them."""
        try:
            return self.model.sanitize(weights) if hasattr(self.model, "sanitize") else weights
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise Refused(f"the checkpoint's weights don't fit its config.json: {error!r}") from error

    def check_unpacked(self) -> None:
        """Raises Refused for a checkpoint that can't be packed again."""
        if self.reading.quantisation is not None:
            raise Refused(
                "the checkpoint is quantised already: choose one in 16 bits to have it quantised while loading"
            )

    def pack(self, bits: int, part: int | None) -> None:
        """Packs the matrices of one block, or with None all outside the blocks, as mlx-lm's convert does."""
        choose = getattr(self.model, "quant_predicate", None)

        def form(path: str, module: Any) -> Any:
            fits = hasattr(module, "to_quantized") and module.weight.shape[-1] % MADE_HERE_GROUP == 0
            if not fits or self.block_of(f"{path}.") != part:
                return False
            return True if choose is None else choose(path, module)

        quantize(self.model, group_size=MADE_HERE_GROUP, bits=bits, class_predicate=form)

    def quantise(self, weights: Weights) -> None:
        """Gives the modules whose weights come with scales MLX's quantised form, each as its entry or shapes say."""
        quantisation = self.reading.quantisation
        if quantisation is None:
            return

        def form(path: str, module: Module) -> Any:
            if f"{path}.scales" not in weights or not hasattr(module, "to_quantized"):
                return False
            own = quantisation.own(path)
            return _as_packed(path, module, weights) if own is None else own

        quantize(
            self.model,
            group_size=quantisation.group_size,
            bits=quantisation.bits,
            mode=quantisation.mode,
            class_predicate=form,
        )


def _as_packed(path: str, module: Module, weights: Weights) -> dict[str, Any]:
    """How a matrix was packed, told by its shapes, as mlx-lm's own loading does."""
    form: dict[str, Any] = infer_quant_config(path, module, weights)
    if f"{path}.global_scale" in weights and _takes_global_scale(module):
        form["global_scale"] = True
    return form


def build(config: Mapping[str, Any], tensors: Collection[str]) -> Built:
    """The Model with lazy random arrays, which take no memory until they are evaluated.

    tensors: the names of all that the checkpoint holds.

    Raises: Refused for a configuration that can't be run.
    """
    return built_from(read(config, tensors))


def built_from(reading: Reading) -> Built:
    """As `build`, of a configuration that has been read."""
    architecture = importlib.import_module(f"mlx_lm.models.{reading.family.module}")
    try:
        model = architecture.Model(architecture.ModelArgs.from_dict(reading.canonical()))
    except (TypeError, ValueError, KeyError, AssertionError, AttributeError, IndexError, ArithmeticError) as error:
        raise Refused(f"config.json doesn't describe a {reading.family.module} model: {error}") from error
    roll = call_roll(model, reading.family, make_prompt_cache(model))
    return Built(reading, model, tuple(blocks_of(model, reading.family)), roll)


def flat(model: Any) -> list[tuple[str, mx.array]]:
    """All parameters by name."""
    return list(tree_flatten(model.parameters()))  # type: ignore[arg-type]
