"""Which keys of a configuration an architecture's code reads, found in its own source."""

import dataclasses
import importlib
import inspect
import re
import sys
from typing import Any

from mlx_lm.models.base import BaseModelArgs

from tests.exact.proof import model_of
from tests.exact.shapes import tiny_config


def keys_of(module: str) -> tuple[list[str], list[str]]:
    """The keys that are read beside `text_config`, and those of the text model's own part; the first empty where a
    configuration has but one part."""
    config = tiny_config(module)
    model = model_of(module, config)
    own = importlib.import_module(f"mlx_lm.models.{module}").ModelArgs
    kinds = {own, *_argument_kinds(model)}
    source = _source(model, kinds)
    if "text_config" not in {field.name for field in dataclasses.fields(own)}:
        return [], _read(own, source)
    inner = sorted({key for kind in kinds - {own} for key in _read(kind, source)})
    return _read(own, source), inner


def _argument_kinds(model: Any) -> set[type]:
    """The classes of all arguments that the Model's modules keep, and of what is nested in them."""
    values = [value for part in model.modules() for value in (*vars(part).values(), *part.values())]
    kept = [value for value in values if isinstance(value, BaseModelArgs)]
    kept += [value for one in kept for value in vars(one).values() if isinstance(value, BaseModelArgs)]
    return {type(value) for value in kept}


def _source(model: Any, kinds: set[type]) -> str:
    names = {type(part).__module__ for part in model.modules()} | {kind.__module__ for kind in kinds}
    names = {name for name in names if name.startswith("mlx_lm.models")}
    return "\n".join(inspect.getsource(sys.modules[name]) for name in sorted(names))


def _read(kind: Any, source: str) -> list[str]:
    names = sorted(field.name for field in dataclasses.fields(kind))
    return [name for name in names if re.search(rf"\.{name}\b|[\"']{name}[\"']", source)]
