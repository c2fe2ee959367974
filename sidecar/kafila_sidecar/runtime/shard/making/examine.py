"""What a checkpoint is made of, and whether it fits its configuration, from headers alone. MLX thread only.

The architecture's own Model is filled with lazy arrays of the headers' shapes and element types, through the same steps
as in loading, and is called for one token. Nothing is evaluated: what counts is which arrays come out.
"""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from kafila_sidecar.errors import Refused
from kafila_sidecar.models.anatomy import Anatomy, BlockAnatomy, Headers
from kafila_sidecar.models.family import is_embedding, is_unembedding, text_of
from kafila_sidecar.models.quantisation import MADE_HERE_GROUP
from kafila_sidecar.models.reading import Reading
from kafila_sidecar.runtime.shard.making.building import Built, build, flat
from kafila_sidecar.runtime.shard.making.loading import compare, stand_ins
from kafila_sidecar.runtime.shard.partial import Forward, Given, redirect

ACTIVATIONS = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16"}


def examine(config: Mapping[str, Any], headers: Headers, *, bits: int = 0) -> Anatomy:
    """The anatomy of a checkpoint whose tensors have these headers.

    bits: as the members pack its matrices while loading, 0 for as they are.

    Raises: Refused, naming the key or the tensor, where configuration and tensors don't fit each other.
    """
    built = build(config, headers)
    weights = built.sanitised(stand_ins(headers))
    built.quantise(weights)
    compare(dict(flat(built.model)), weights)
    built.model.eval()
    built.model.load_weights(list(weights.items()), strict=False)
    quantization = _quantization(built)
    if bits:
        _pack(built, bits)
        quantization = f"{bits}-bit, made here from {quantization}"
    return _anatomy(built, _Rehearsal(built), quantization)


def _pack(built: Built, bits: int) -> None:
    before = built.weight_bytes(0, built.count, head=True)
    built.check_unpacked()
    for part in (*range(built.count), None):
        built.pack(bits, part)
    if built.weight_bytes(0, built.count, head=True) == before:
        raise Refused(f"no matrix of this model can be quantised: their rows are no multiple of {MADE_HERE_GROUP}")


class _Rehearsal:
    """One token through the whole Model, lazily: which experts are chosen, what caches get, what a state is."""

    def __init__(self, built: Built) -> None:
        self.caches = built.caches()
        self.chosen: dict[int, int] = {}  # experts of a token, by the id of their matrices' module
        self.dtype = mx.float32
        for block in built.blocks:
            for part in block.modules():
                if isinstance(part, SwitchLinear | QuantizedSwitchLinear):
                    redirect(part, partial(self._at_experts, id(part)))
        first = built.blocks[0]
        redirect(first, partial(self._at_first_block, built.family.state))
        built.model(mx.zeros((1, 1), dtype=mx.int32), cache=list(self.caches))

    def _at_experts(self, which: int, given: Given, forward: Forward) -> Any:
        self.chosen[which] = given["indices"].shape[-1]
        return forward(given)

    def _at_first_block(self, state: str | None, given: Given, forward: Forward) -> Any:
        self.dtype = (next(iter(given.values())) if state is None else given[state]).dtype
        return forward(given)


def _anatomy(built: Built, rehearsal: _Rehearsal, quantization: str) -> Anatomy:
    if rehearsal.dtype not in ACTIVATIONS:
        raise Refused(f"hidden states of this model are {rehearsal.dtype}: choose a checkpoint in bf16, f16 or f32")
    reading = built.reading
    outside = [(name, array.nbytes) for name, array in flat(built.model) if built.block_of(name) is None]
    embed_bytes = sum(size for name, size in outside if is_embedding(name))
    unembed_bytes = sum(size for name, size in outside if is_unembedding(name))
    tied = not unembed_bytes
    return Anatomy(
        blocks=tuple(_block(built, rehearsal, index) for index in range(built.count)),
        embed_bytes=embed_bytes,
        unembed_bytes=embed_bytes if tied else unembed_bytes,
        norm_bytes=sum(size for _, size in outside) - embed_bytes - unembed_bytes,
        tied=tied,
        activation_dtype=ACTIVATIONS[rehearsal.dtype],
        quantization=quantization,
        parameters=_parameters(built),
        no_cut_after=built.roll.no_cut_after(),
        most_tokens=reading.most_tokens,
        notices=_notices(reading),
    )


def _block(built: Built, rehearsal: _Rehearsal, index: int) -> BlockAnatomy:
    block, slot = built.blocks[index], built.roll.places[index].slot
    held = sum(array.nbytes for _, array in flat(block))
    unread = sum(_unread(part, rehearsal.chosen[id(part)]) for part in block.modules() if id(part) in rehearsal.chosen)
    own = slot is not None and all(place.slot != slot for place in built.roll.places[:index])
    per_token, fixed, window = _cache(rehearsal.caches[slot]) if slot is not None and own else (0, 0, None)
    return BlockAnatomy(held, held - unread, per_token, fixed, window)


def _unread(experts: Any, chosen: int) -> int:
    """Bytes of the experts that one token doesn't choose."""
    held = sum(array.nbytes for _, array in flat(experts))
    count = int(experts.num_experts)
    return held - held * min(chosen, count) // count


def _cache(cache: Any) -> tuple[int, int, int | None]:
    """Bytes per token, bytes in any case, and the most tokens, of a cache that has seen one token."""
    parts = getattr(cache, "caches", None)
    if parts is not None:
        return _together([_cache(part) for part in parts])
    window = getattr(cache, "max_size", None) or getattr(cache, "chunk_size", None)
    keys, values = getattr(cache, "keys", None), getattr(cache, "values", None)
    if keys is None or values is None:
        return 0, int(cache.nbytes), None
    return (keys.nbytes + values.nbytes) // keys.shape[2], 0, window


def _together(parts: list[tuple[int, int, int | None]]) -> tuple[int, int, int | None]:
    """Several caches of one block as one; a window beside a growing one counts as full."""
    windows = {window for _, _, window in parts}
    if len(windows) == 1:
        return sum(part[0] for part in parts), sum(part[1] for part in parts), windows.pop()
    fixed = sum(part[1] + part[0] * (part[2] or 0) for part in parts)
    return sum(per_token for per_token, _, window in parts if window is None), fixed, None


def _quantization(built: Built) -> str:
    quantisation = built.reading.quantisation
    if quantisation is not None and not quantisation.dequantised:
        return f"{quantisation.bits}-bit"
    sizes: Counter[str] = Counter()
    for _, array in flat(built.model):
        sizes[ACTIVATIONS.get(array.dtype, str(array.dtype))] += array.nbytes
    return sizes.most_common(1)[0][0]


def _parameters(built: Built) -> int:
    """A packed matrix counts what it stands for, scales and biases of its groups not at all."""
    total = 0
    parts: list[Any] = built.model.modules()  # type: ignore[no-untyped-call]
    for part in parts:
        for name, value in part.items():
            if isinstance(value, mx.array) and not ("scales" in part and name in ("scales", "biases")):
                packed = name == "weight" and "scales" in part
                total += value.size * 32 // part.bits if packed else value.size
    return total


def _notices(reading: Reading) -> tuple[str, ...]:
    notices = []
    if text_of(reading.config) is not reading.config:
        notices.append("of this model, the text part is run: pictures and sound are not taken")
    if reading.most_tokens is not None:
        notices.append(f"its answers are right up to {reading.most_tokens} tokens, where its window ends")
    return tuple(notices)
