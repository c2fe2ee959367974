"""From a checkpoint's files to a Model that holds only our part of it. MLX thread only."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from kafila_sidecar.errors import NotFound, Refused
from kafila_sidecar.models.anatomy import Headers
from kafila_sidecar.models.quantisation import with_modelopt
from kafila_sidecar.runtime.memory import check_room
from kafila_sidecar.runtime.shard.making.building import Built, build, flat
from kafila_sidecar.runtime.shard.partial import strip
from kafila_sidecar.small_files import CONFIG, QUANT_CONFIG, read_json, read_optional_json

Weights = dict[str, mx.array]

HEADER_DTYPES = {
    **{"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16, "U32": mx.uint32, "U8": mx.uint8, "I8": mx.int8},
    **{"I16": mx.int16, "U16": mx.uint16, "I32": mx.int32, "I64": mx.int64, "U64": mx.uint64, "BOOL": mx.bool_},
    **{"F8_E4M3": mx.uint8, "F8_E8M0": mx.uint8},  # as mx.load gives them
}


def read_config(folder: Path) -> dict[str, Any]:
    """The checkpoint's config.json, with what hf_quant_config.json adds.

    Raises: Refused when it is absent or no JSON object.
    """
    try:
        config = read_json("the checkpoint", folder / CONFIG)
    except NotFound as error:
        raise Refused(str(error)) from error
    return with_modelopt(config, read_optional_json("the checkpoint", folder, QUANT_CONFIG))


def load_part(
    config: Mapping[str, Any],
    files: Mapping[Path, Collection[str]],
    *,
    start: int,
    end: int,
    head: bool,
    headers: Headers | None = None,
    bits: int = 0,
    kept: Weights | None = None,
    came: Callable[[], object] = lambda: None,
) -> Built:
    """The Model with the blocks [start, end), and all that lies outside the blocks if `head`, evaluated.

    files: which tensors are to be taken from which safetensors file; what else stands in a file (a hole, in a sparse
    one) becomes lazy NaN, that `sanitize()` may handle and nobody evaluates. headers: of all tensors of the checkpoint;
    by default those in `files` are all. bits: 4 or 8 packs the matrices of a 16-bit checkpoint, 0 leaves them as they
    are. kept: arrays of this checkpoint that are in memory already, in the form that `bits` says, by mlx-lm's names, of
    whole blocks and of all outside the blocks or nothing; those of other parts are dropped first, ours stand in for
    what the files have. came: called for each array that has been read, or each block.

    Raises: Refused when a tensor of ours is missing or doesn't fit the configuration, or all of them the memory.
    """
    weights = _read(files)
    weights |= stand_ins({name: header for name, header in (headers or {}).items() if name not in weights})
    # Whoever doesn't hold the head may not see whether there is an unembedding, and needs none.
    built = build(config, weights.keys() | (set() if head else {"lm_head.weight"}))
    if bits:
        built.check_unpacked()
    return filled(built, files, weights, start=start, end=end, head=head, bits=bits, kept=kept, came=came)


def filled(
    built: Built,
    files: Mapping[Path, Collection[str]],
    weights: Weights,
    *,
    start: int,
    end: int,
    head: bool,
    bits: int = 0,
    kept: Weights | None = None,
    came: Callable[[], object] = lambda: None,
) -> Built:
    """As `load_part`, of a Model that has been built and of arrays that have been read, which leave `weights`."""
    if not 0 <= start <= end <= built.count or (head and start != 0):
        raise Refused(f"blocks {start} to {end} are no part of a model of {built.count} blocks")
    _refuse_lacking(built, files, weights, start=start, end=end, head=head)
    fitted = built.sanitised(dict(weights))
    ours = {name: array for name, array in fitted.items() if built.is_of(name, start, end, head=head)}
    ready = _take_over(built, ours, kept, start=start, end=end, head=head) if kept is not None else set()
    weights.clear()  # whatever holds an array keeps it in memory once it has been read
    fitted.clear()
    strip_absent(built, start=start, end=end)
    built.quantise(ours)
    _pack(built, bits, ready)
    _put_in(built, ours, start=start, end=end, head=head)
    # What lies outside the blocks comes first, since its matrices are the largest: there is most room for them then.
    coming = [part for part in [*([None] if head else []), *range(start, end)] if part not in ready]
    _pack(built, bits, coming)
    check_room(sum(array.nbytes for part in coming for array in _of_part(built, part)))
    for part in coming:
        _evaluate(built, part, came, one_by_one=bool(bits))
    return built


def _pack(built: Built, bits: int, parts: Collection[int | None]) -> None:
    """Packs blocks, None for all outside them, lazily; 0 bits leave them as they are."""
    for part in parts if bits else ():
        built.pack(bits, part)


def _of_part(built: Built, part: int | None) -> list[mx.array]:
    return [array for name, array in flat(built.model) if built.block_of(name) == part]


def _take_over(built: Built, ours: Weights, kept: Weights, *, start: int, end: int, head: bool) -> set[int | None]:
    """Puts the arrays that are in memory in the place of what `ours` has of the same blocks, and lets go of the rest.
    Returns the blocks, None for all outside them."""
    ready = {built.block_of(name) for name in kept if built.is_of(name, start, end, head=head)}
    for name in [name for name in ours if built.block_of(name) in ready]:
        del ours[name]
    ours |= {name: array for name, array in kept.items() if built.block_of(name) in ready}
    kept.clear()
    mx.clear_cache()
    return ready


def _refuse_lacking(
    built: Built, files: Mapping[Path, Collection[str]], weights: Weights, *, start: int, end: int, head: bool
) -> None:
    held = {name for names in files.values() for name in names}
    lacking = sorted(
        name for name in weights if name not in held and built.reading.holds(name, start=start, end=end, head=head)
    )
    if lacking:
        raise Refused(f"the weights {lacking[0]!r} of this member's part are not here: fetch them again")


def strip_absent(built: Built, *, start: int, end: int) -> None:
    """Takes the arrays out of the blocks of other stages. Those outside the blocks stay: lazy, they take no memory, and
    the architecture's code may call them for what it then doesn't use."""
    for index, block in enumerate(built.blocks):
        if not start <= index < end:
            strip(block)


def _read(files: Mapping[Path, Collection[str]]) -> Weights:
    weights: Weights = {}
    for path, names in files.items():
        held = set(names)
        arrays: Weights = mx.load(str(path), format="safetensors")  # type: ignore[assignment]
        if not held <= arrays.keys():
            lost = sorted(held - arrays.keys())[0]
            raise Refused(f"the weights {lost!r} of this member's part are not in {path.name}: fetch them again")
        for name, array in arrays.items():
            weights[name] = array if name in held else absent(array.shape, array.dtype)
    return weights


def stand_ins(headers: Headers) -> Weights:
    """Lazy arrays of the headers' shapes and element types, for what isn't here.

    Raises: Refused for an element type that MLX doesn't have.
    """
    weights = {}
    for name, header in headers.items():
        if header.dtype not in HEADER_DTYPES:
            raise Refused(f"the checkpoint's {name} is {header.dtype}: choose a checkpoint in bf16, f16 or f32")
        weights[name] = absent(header.shape, HEADER_DTYPES[header.dtype])
    return weights


def absent(shape: Collection[int], dtype: mx.Dtype) -> mx.array:
    """Stands for an array that isn't here: should anybody compute with it after all, the answer is no number."""
    if mx.issubdtype(dtype, mx.floating):
        return mx.full(tuple(shape), mx.nan, dtype)
    return mx.full(tuple(shape), 0xFF if dtype == mx.uint8 else 0, dtype)


def _put_in(built: Built, weights: Weights, *, start: int, end: int, head: bool) -> None:
    """Makes the weights, which leave `weights`, the Model's own."""
    compare({name: array for name, array in flat(built.model) if built.is_of(name, start, end, head=head)}, weights)
    model: Module = built.model
    model.eval()
    model.load_weights(list(weights.items()), strict=False)
    weights.clear()


def _evaluate(built: Built, part: int | None, came: Callable[[], object], *, one_by_one: bool) -> None:
    """Reads one block, or all outside the blocks, and frees what `sanitize()` built on. Matrices that are packed come
    `one_by_one`, so that each leaves before the next one is read."""
    arrays = _of_part(built, part)
    for step in [[array] for array in arrays] if one_by_one else [arrays]:
        mx.eval(step)
        came()


def compare(wanted: Weights, weights: Weights) -> None:
    """Raises Refused, naming the tensor, unless the weights are what the Model has, in name and shape."""
    missing, unknown = sorted(wanted.keys() - weights.keys()), sorted(weights.keys() - wanted.keys())
    if missing or unknown:
        fault = f"lack {missing[0]}" if missing else f"have {unknown[0]}, which this architecture doesn't know"
        raise Refused(f"the checkpoint's weights don't fit its config.json: they {fault}")
    for name, array in weights.items():
        if array.shape != wanted[name].shape:
            raise Refused(
                f"the checkpoint's weights don't fit its config.json: {name} has the shape {tuple(array.shape)}, "
                f"where {tuple(wanted[name].shape)} is needed"
            )
