"""What a processor can't compute of a model with experts. MLX thread only."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.switch_layers import SwitchLinear

from kafila_sidecar.errors import Refused


def check_experts(blocks: Sequence[Any]) -> None:
    """Raises: Refused for experts' matrices in 16 bits where the processor computes: there MLX multiplies chosen
    matrices of f32 and of packed weights alone."""
    if mx.default_device() != mx.Device(mx.cpu):
        return
    parts = (part for block in blocks for part in block.modules())
    if any(isinstance(part, SwitchLinear) and part.weight.dtype != mx.float32 for part in parts):
        raise Refused(
            "this machine's processor can't compute experts in 16 bits, only a GPU can: create the session with"
            " --quantize 4 or 8, or take a checkpoint that is packed already"
        )
