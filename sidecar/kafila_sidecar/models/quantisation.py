"""What a configuration says of quantised weights, and which of it can be run."""

from collections.abc import Mapping
from typing import Any

from kafila_sidecar.errors import Refused

_QUANTISED_BITS = (4, 8)


def quantisation_of(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """MLX's quantisation entry of config.json, None for a checkpoint in 16 or 32 bits.

    Raises: Refused, for other methods than MLX's own affine 4 and 8 bits.
    """
    quantisation = config.get("quantization")
    if quantisation is None:
        other = config.get("quantization_config")
        if other is not None:
            method = other.get("quant_method", "unknown") if isinstance(other, Mapping) else "unknown"
            raise Refused(f"the checkpoint is quantised by {method!r}: choose 16-bit weights, or MLX's 4 or 8 bits")
        return None
    entries = [quantisation, *(entry for entry in quantisation.values() if isinstance(entry, Mapping))]
    for entry in entries:
        mode, bits = entry.get("mode", "affine"), entry.get("bits")
        if mode != "affine" or bits not in _QUANTISED_BITS:
            raise Refused(f"the checkpoint is quantised to {bits} bits, mode {mode!r}: choose MLX's affine 4 or 8 bits")
    return dict(quantisation)
