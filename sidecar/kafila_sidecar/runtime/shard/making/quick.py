"""Prompts in 16 bits, over packed weights or through experts, on a processor: computed in f32. MLX thread only.

MLX's matrix products of these kinds are made for few tokens on a processor: of 31 tokens and a 1024 x 3072 matrix one
took 51 ms in bf16 and 690 ms in 4 bits, through f32 6 and 13 ms (two cores). So from `LEAST_TOKENS` tokens of one
sequence on, a matrix is turned into f32 for the moment of its product, a slice at a time (`widening.py`), and the
result rounded; experts likewise, each with all tokens that chose it (`quick_experts.py`). Each element is then at least
as near to the exact one, but not always the same: of bf16 1 in 5,000 is the neighbouring number. Attention in 16 bits
goes the same way, whose products are of that kind too: 256 tokens behind 1,800 took a block's 16 heads of 128 elements
2.7 s in bf16, and 0.5 s through f32 (one core). So do matrices of which each head has one: for 1,000 tokens of context
four heads of 512 x 128 took 509 ms in 4 bits and 112 ms in bf16, through f32 9 ms. Single tokens and guesses are never
computed so: what is decoded is what the architecture's own code gives.

`bench/prefill.py` has how many times as quickly as an answer's tokens those of a prompt are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import mlx.core as mx
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedLinear
from mlx_lm.models.mla import MultiLinear, QuantizedMultiLinear

from kafila_sidecar.runtime.shard.making.quick_experts import LEAST_TOKENS, BlockCall, ExpertProduct, has_experts
from kafila_sidecar.runtime.shard.making.widening import computed, slices_of
from kafila_sidecar.runtime.shard.partial import Forward, Given, first_parameter, redirect
from kafila_sidecar.runtime.shard.rows import ATTENTION

HALF = (mx.bfloat16, mx.float16)


def quicken_prompts(blocks: Sequence[Any], state: str | None = None) -> None:
    """Lets matrices, experts and attention of these blocks take long chunks through f32, where the processor computes.

    state: the parameter of a block's call that takes the hidden state; None for the first.
    """
    if mx.default_device() != mx.Device(mx.cpu):
        return
    for block in blocks:
        call = BlockCall(state or first_parameter(block))
        for module in block.modules():
            if _is_slow(module):
                redirect(module, _Product(module, call))
            elif has_experts(module):
                redirect(module, ExpertProduct(module, call))
            elif _has_slow_heads(module):
                redirect(module, _HeadProduct(module, call))
            elif _attends(module):
                _quicken_attention(module)
        redirect(block, call)


def _is_slow(module: Any) -> bool:
    if isinstance(module, QuantizedLinear):
        return "global_scale" not in module
    return isinstance(module, Linear) and module.weight.dtype in HALF


def _has_slow_heads(module: Any) -> bool:
    if isinstance(module, QuantizedMultiLinear):
        return "global_scale" not in module
    return isinstance(module, MultiLinear) and module.weight.dtype in HALF


def _attends(module: Any) -> bool:
    call = type(module).__call__
    return isinstance(call, FunctionType) and ATTENTION in call.__code__.co_names


def _quicken_attention(module: Any) -> None:
    """Lets this one module call another attention than its code's other modules do."""
    kind = type(module)
    own = kind.__call__
    names = {**own.__globals__, ATTENTION: _Attention(own.__globals__)}
    call = FunctionType(own.__code__, names, own.__name__, own.__defaults__, own.__closure__)
    call.__kwdefaults__ = own.__kwdefaults__
    module.__class__ = type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


class _Attention:
    """In place of what an architecture's code calls so, which is looked up for each call: it may be replaced too."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def __call__(self, queries: mx.array, keys: Any, values: Any, *rest: Any, **given: Any) -> mx.array:
        """queries: [B, H, T, D]; keys and values [B, K, S, D], or what only another attention understands."""
        attention = self._names[ATTENTION]
        is_long = queries.dtype in HALF and queries.shape[-2] >= LEAST_TOKENS
        if not is_long or not isinstance(keys, mx.array) or not isinstance(values, mx.array):
            plain: mx.array = attention(queries, keys, values, *rest, **given)
            return plain
        wide = (part.astype(mx.float32) for part in (queries, keys, values))
        answer: mx.array = attention(*wide, *rest, **given)
        return answer.astype(queries.dtype)


class _Product:
    """Answers the calls of one Linear within a block."""

    def __init__(self, module: Any, call: BlockCall) -> None:
        self._module, self._call = module, call

    def __call__(self, given: Given, forward: Forward) -> mx.array:
        """x: [B, T, inputs], or the rows of all tokens, [B T, inputs]."""
        x: mx.array = given["x"]
        if not (x.shape[-2] >= LEAST_TOKENS if x.ndim > 2 else self._call.is_long):
            result: mx.array = forward(given)
            return result
        wide = x.astype(mx.float32)
        product = mx.concatenate(list(computed(wide @ part.T for part in slices_of(self._module))), axis=-1)
        if "bias" in self._module:
            product = product + self._module.bias.astype(mx.float32)
        return product.astype(x.dtype)


class _HeadProduct:
    """Answers the calls of one layer of matrices within a block, of which each attention head has one. They make keys
    and values of all the context for each chunk, where those are kept in few numbers."""

    def __init__(self, module: Any, call: BlockCall) -> None:
        self._module, self._call = module, call

    def __call__(self, given: Given, forward: Forward) -> mx.array:
        """x: [B, H or 1, S, inputs]; or outputs in place of inputs, where `transpose` is False."""
        plain: mx.array = forward(given)  # lazy: in a long chunk only its element type is looked at
        if not self._call.is_long:
            return plain
        wide = given["x"].astype(mx.float32)
        heads = range(self._module.weight.shape[0])
        product = self._product if given.get("transpose", True) else self._product_across
        of_each = [product(wide[:, head : head + 1] if wide.shape[1] > 1 else wide, head) for head in heads]
        return mx.concatenate([one.astype(plain.dtype) for one in of_each], axis=1)

    def _product(self, x: mx.array, head: int) -> mx.array:
        return mx.concatenate(list(computed(x @ part.T for part in slices_of(self._module, head))), axis=-1)

    def _product_across(self, x: mx.array, head: int) -> mx.array:
        """With the matrix as it lies: what its slices give is a sum."""
        return sum(computed(self._parts_across(x, head)), mx.array(0.0))

    def _parts_across(self, x: mx.array, head: int) -> Iterator[mx.array]:
        start = 0
        for part in slices_of(self._module, head):
            end = start + part.shape[0]
            yield x[..., start:end] @ part
            start = end
