"""What a configuration says of quantised weights, and which of it can be run: what mlx-lm 0.32.2 reads exactly."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafila_sidecar.errors import InvalidInput, Refused

MODES: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "affine": ((2, 3, 4, 5, 6, 8), (32, 64, 128)),
    "mxfp4": ((4,), (32,)),
    "nvfp4": ((4,), (16,)),
    "mxfp8": ((8,), (32,)),
}
"""Bits and group sizes of each of MLX's ways to pack a matrix."""
MICROSCALED: Mapping[str, tuple[int, int]] = {"mxfp4": (32, 4), "mxfp8": (32, 8)}
"""Group size and bits where a `quant_method` alone says all."""
PACKED_FORMATS: Mapping[str, tuple[int, int, str]] = {
    "nvfp4-pack-quantized": (16, 4, "nvfp4"),
    "mxfp4-pack-quantized": (32, 4, "mxfp4"),
}
"""Group size, bits and mode of compressed-tensors' formats that are MLX's own under another name."""
MODELOPT_FILE = frozenset({"producer", "quant_method", "quantization"})
"""What NVIDIA's ModelOpt writes into a file of its own; `quantization` are its settings."""
MODELOPT_SILENT = frozenset(
    {
        *("producer", "quant_method", "quant_algo", "group_size"),
        *("exclude_modules", "ignore", "config_groups", "targets", "kv_cache_quant_algo", "kv_cache_scheme"),
    }
)
"""Of its settings those that are read, or change nothing here: the tensors show which matrices are packed, and caches
are kept in full."""
MADE_HERE_BITS = (4, 8)
"""What members pack a 16-bit checkpoint to while they load it."""
MADE_HERE_GROUP = 64
"""Elements of a group then, as mlx-lm's convert has it."""
ELSEWHERE = "look for an MLX conversion of it, as mlx-community's with -4bit at the end of the name"


@dataclass(frozen=True, slots=True)
class Quantisation:
    """group_size, bits, mode: where nothing else is said. overrides: by module path; None leaves a module as it is."""

    group_size: int
    bits: int
    mode: str = "affine"
    overrides: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    dequantised: bool = False  # FP8 that the architecture's own code turns into 16 bits while loading

    def own(self, path: str) -> dict[str, Any] | bool | None:
        """What the configuration says of one module: its parameters, False for none, None where it says nothing."""
        if path not in self.overrides:
            return None
        said = self.overrides[path]
        return dict(said) if said is not None else False


def quantisation_of(config: Mapping[str, Any]) -> Quantisation | None:
    """How a checkpoint's weights are packed, None for 16 or 32 bits.

    Raises: Refused for a way that can't be run, naming it and what to look for instead.
    """
    own = config.get("quantization")
    if isinstance(own, Mapping):
        return _of_mlx(own)
    if own is not None:
        raise Refused(f"config.json says quantization = {own!r}, which is no description of MLX's packed weights")
    other = _others_entry(config)
    return None if other is None else _of_others(other)


def with_modelopt(config: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with what ModelOpt's own file says of the weights, {} for none. MLX's own word comes before it, as in
    mlx-lm: such a file stays behind when a checkpoint is converted.

    Raises: Refused for a file that makes no sense, or where both say different things.
    """
    if not told or config.get("quantization") is not None:
        return dict(config)
    settings, unknown = told.get("quantization"), sorted(told.keys() - MODELOPT_FILE)
    if not isinstance(settings, Mapping) or unknown:
        what = unknown[0][:40] if unknown else "no quantization"
        raise Refused(f"hf_quant_config.json says {what}, so that it can't be told how the weights are packed")
    entry = {"quant_method": "modelopt", **told}
    said, other = _of_others(entry), _others_entry(config)
    if other is None:
        return {**config, "quantization_config": entry}
    if _of_others(other) != said:
        raise Refused(
            "config.json and hf_quant_config.json disagree on how the weights are packed: choose another copy"
        )
    return dict(config)


def _others_entry(config: Mapping[str, Any]) -> Any:
    other = config.get("quantization_config")
    if other is None and isinstance(config.get("text_config"), Mapping):
        other = config["text_config"].get("quantization_config")
    return other


def check_bits(bits: int) -> None:
    """Raises InvalidInput unless members can pack a checkpoint to so many bits; 0: they leave it as it is."""
    if bits and bits not in MADE_HERE_BITS:
        raise InvalidInput(f"weights can't be quantised to {bits} bits while loading: choose 4 or 8")


def made_here(config: Mapping[str, Any], bits: int) -> Mapping[str, Any]:
    """What config.json would say if the checkpoint had been packed before; 0 bits: as it is."""
    return {**config, "quantization": {"group_size": MADE_HERE_GROUP, "bits": bits}} if bits else config


def _of_mlx(entry: Mapping[str, Any]) -> Quantisation:
    overrides = {
        path: said if isinstance(said, Mapping) else None
        for path, said in entry.items()
        if isinstance(said, Mapping) or said is False
    }
    for said in (entry, *(said for said in overrides.values() if said is not None)):
        _check(said)
    return Quantisation(entry["group_size"], entry["bits"], entry.get("mode", "affine"), overrides)


def _check(entry: Mapping[str, Any]) -> None:
    mode, bits, group = entry.get("mode", "affine"), entry.get("bits"), entry.get("group_size")
    if not isinstance(mode, str) or mode not in MODES:
        raise Refused(f"the checkpoint is quantised in the mode {mode!r}: choose one in {', '.join(MODES)}")
    sizes, groups = MODES[mode]
    if type(bits) is not int or bits not in sizes or type(group) is not int or group not in groups:
        raise Refused(
            f"the checkpoint is quantised to {bits!r} bits in groups of {group!r}, mode {mode}: "
            f"MLX has {', '.join(map(str, sizes))} bits in groups of {', '.join(map(str, groups))}"
        )


def _of_others(entry: Any) -> Quantisation | None:
    method = entry.get("quant_method", "unknown") if isinstance(entry, Mapping) else "unknown"
    if method in MICROSCALED:
        group, bits = MICROSCALED[method]
        return Quantisation(group, bits, method)
    if method == "compressed-tensors" and entry.get("format") in PACKED_FORMATS:
        group, bits, mode = PACKED_FORMATS[entry["format"]]
        return Quantisation(group, bits, mode)
    if method == "compressed-tensors" and entry.get("format") == "pack-quantized" and _is_int4(entry):
        return Quantisation(32, 4)
    if method == "fp8":
        if entry.get("scale_fmt") == "ue8m0" and list(entry.get("weight_block_size") or ()) == [32, 32]:
            return Quantisation(32, 8, "mxfp8")
        return Quantisation(128, 8, "fp8", dequantised=True)
    if method == "modelopt":
        return _of_modelopt(entry)
    named = f"{method} ({entry['format']})" if isinstance(entry, Mapping) and "format" in entry else method
    raise Refused(f"the checkpoint is quantised by {named}, which can't be run exactly: {ELSEWHERE}")


def _is_int4(entry: Mapping[str, Any]) -> bool:
    """Whether all groups of layers are symmetric 4-bit integers in groups of 32, as some publishers ship experts."""
    groups = entry.get("config_groups")
    weights = [group.get("weights") for group in groups.values()] if isinstance(groups, Mapping) else []
    wanted = {"num_bits": 4, "group_size": 32, "symmetric": True, "type": "int"}
    return bool(weights) and all(
        isinstance(one, Mapping) and all(one.get(key) == value for key, value in wanted.items()) for one in weights
    )


def _of_modelopt(entry: Mapping[str, Any]) -> Quantisation | None:
    """None where it says that caches alone are packed."""
    settings = entry.get("quantization", entry)
    if not isinstance(settings, Mapping):
        raise Refused(f"the checkpoint says modelopt's quantization = {str(settings)[:40]!r}: choose another copy")
    algorithm, group = settings.get("quant_algo"), settings.get("group_size", 16)
    if algorithm is None and "quant_algo" in settings:
        return None
    if algorithm != "NVFP4" or group != 16:
        raise Refused(f"the checkpoint is quantised by modelopt ({algorithm}), which can't be run exactly: {ELSEWHERE}")
    unread = sorted(key for key, value in settings.items() if value and key not in MODELOPT_SILENT)
    if unread:
        raise Refused(f"the checkpoint is quantised by modelopt with {unread[0][:40]}, which is not read: {ELSEWHERE}")
    return Quantisation(16, 4, "nvfp4")
