"""Several sequences in one run: views that join their caches for the model's own code. MLX thread only.

Every sequence stays the only owner of its caches. For one run each block gets a view of B of them, which the
architecture's code takes for one cache: positions are an array, so that each row is rotated by its own; keys and
values stay apart, and attention is done row by row, as it would be for that sequence alone. Where the code does more
with keys and values than attend, the whole module that has the cache runs row by row instead (`Together.BESIDE_CACHE`).
Nothing is padded, and nothing is copied when a sequence joins or leaves.

The same views let several tokens of a sequence attend one after another, each to what is before it and itself, as in
single steps: on some devices attention over several tokens at once rounds otherwise.

Letters: B rows, T tokens of each, H heads, K width of a head.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from kafila_sidecar.models.family import Together
from kafila_sidecar.runtime.shard.kv import SequenceCache
from kafila_sidecar.runtime.shard.partial import Forward, Given, first_parameter, parameters_of, redirect

ATTENTION = "scaled_dot_product_attention"  # what mlx-lm's architectures call it
CACHE = "cache"  # and the parameter of the modules that have one

Attention = Callable[..., mx.array]


class RaggedArrays(list[Any]):
    """Keys or values of B rows, [1, H, its own length, K] each; by token, those of T tokens of each row."""


class RaggedCache:
    """B sequences' caches of one block's keys and values."""

    def __init__(self, rows: Sequence[Any], *, by_token: bool = False) -> None:
        self.rows = rows
        self.by_token = by_token
        self.offset = mx.array([cache.offset for cache in rows])  # [B], made anew for each run

    def make_mask(self, tokens: int, **asked: Any) -> "list[Any] | None":
        """A mask for each row; None where no row needs one."""
        if self.by_token:
            return None
        masks = [cache.make_mask(tokens, **asked) for cache in self.rows]
        return None if all(mask is None for mask in masks) else masks

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[RaggedArrays, RaggedArrays]:
        """Gives each cache its row of [B, H, T, K], and returns what each has."""
        pairs = [
            cache.update_and_fetch(keys[row : row + 1], values[row : row + 1]) for row, cache in enumerate(self.rows)
        ]
        if self.by_token:
            pairs = [
                _up_to(pair, cache.offset - after)
                for pair, cache in zip(pairs, self.rows, strict=True)
                for after in reversed(range(keys.shape[2]))
            ]
        return RaggedArrays(pair[0] for pair in pairs), RaggedArrays(pair[1] for pair in pairs)


class JoinedStates:
    """B sequences' states of fixed size, such as those of a convolution or a recurrence."""

    lengths = left_padding = None  # as of a cache whose rows all begin at their first token

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = rows

    def __getitem__(self, part: int) -> mx.array | None:
        parts = [cache[part] for cache in self.rows]
        return None if any(one is None for one in parts) else mx.concatenate(parts)

    def __setitem__(self, part: int, value: mx.array) -> None:
        for row, cache in enumerate(self.rows):
            cache[part] = value[row : row + 1]

    def advance(self, tokens: int) -> None:
        for cache in self.rows:
            cache.advance(tokens)

    def make_mask(self, tokens: int) -> None:
        """None: no row is padded."""


class JoinedList:
    """B sequences' caches of a block that has several."""

    def __init__(self, rows: Sequence[Any], *, by_token: bool = False) -> None:
        self.rows = rows
        self.caches = [
            view_of(parts, by_token=by_token) for parts in zip(*(cache.caches for cache in rows), strict=True)
        ]

    def __getitem__(self, part: int) -> Any:
        return self.caches[part]


def _up_to(values: Any, length: int) -> Any:
    """Keys and values, packed ones too, of the first `length` tokens."""
    if isinstance(values, tuple | list):
        return tuple(_up_to(value, length) for value in values)
    return values[..., :length, :]


def joined_slots(rows: Sequence[SequenceCache], *, by_token: bool = False) -> list[Any]:
    """What the model's code gets as its caches: a view for each slot, one for slots that share their caches. For one
    row its own caches, unless it is to attend token by token."""
    if len(rows) == 1 and not by_token:
        return rows[0].slots
    views: dict[tuple[int, ...], Any] = {}
    slots = []
    for caches in zip(*(row.slots for row in rows), strict=True):
        key = tuple(map(id, caches))
        if key not in views:
            views[key] = view_of(caches, by_token=by_token)
        slots.append(views[key])
    return slots


def view_of(caches: Sequence[Any], *, by_token: bool = False) -> Any:
    """One view of several caches of a kind."""
    first = caches[0]
    if hasattr(first, "caches"):
        return JoinedList(caches, by_token=by_token)
    return RaggedCache(caches, by_token=by_token) if hasattr(first, "update_and_fetch") else JoinedStates(caches)


def let_take_rows(model: Module, blocks: Sequence[Any], how: Together) -> None:
    """Lets the model's code take several sequences in one run; of one it does what it did before."""
    if how is Together.BUT_ATTENTION:
        _attend_by_rows(model)
    elif how is Together.BESIDE_CACHE:
        for module in (part for block in blocks for part in block.modules()[1:]):
            if CACHE in parameters_of(type(module)):
                redirect(module, partial(_each_row, first_parameter(module)))


def _each_row(state: str, given: Given, forward: Forward) -> Any:
    """What a module that has a cache returns for a view of several: each row's own, one after the other."""
    rows = getattr(given.get(CACHE), "rows", None)
    if rows is None:
        return forward(given)
    count = len(rows)
    answers = [forward({name: _row_of(value, row, count) for name, value in given.items()}) for row in range(count)]
    if isinstance(answers[0], tuple):
        return tuple(_stack(parts) for parts in zip(*answers, strict=True))
    return _stack(answers)


def _row_of(value: Any, row: int, count: int) -> Any:
    if isinstance(value, list):
        return value[row]
    if isinstance(value, mx.array) and value.ndim and value.shape[0] == count:
        return value[row : row + 1]
    return value.rows[row] if hasattr(value, "rows") else value


def _stack(parts: Sequence[Any]) -> Any:
    return mx.concatenate(list(parts)) if isinstance(parts[0], mx.array) else parts[0]


def _attend_by_rows(model: Module) -> None:
    """Lets the attention of this model's code take what a view gives; for anything else it stays what it is."""
    parts: list[Any] = model.modules()  # type: ignore[no-untyped-call]
    for name in {kind.__module__ for part in parts for kind in type(part).__mro__}:
        module = sys.modules.get(name)
        attention = getattr(module, ATTENTION, None)
        if module is not None and attention is not None and not hasattr(attention, "of_one_row"):
            setattr(module, ATTENTION, by_rows(attention))


def by_rows(attention: Attention) -> Attention:
    """The same attention, and row by row over `RaggedArrays`, or token by token."""

    def attend(queries: mx.array, keys: Any, values: Any, cache: Any = None, *rest: Any, **given: Any) -> mx.array:
        if not isinstance(keys, RaggedArrays):
            return attention(queries, keys, values, cache, *rest, **given)
        scale, mask, *more = _called(rest, given)
        count = queries.shape[0]
        times = len(keys) // count  # T where each token attends by itself, else 1
        parts = [
            attention(
                queries[row : row + 1, :, token : token + 1] if times > 1 else queries[row : row + 1],
                keys[row * times + token],
                values[row * times + token],
                cache.rows[row] if isinstance(cache, RaggedCache) else cache,
                scale,
                mask[row] if isinstance(mask, list) else mask,
                *more,
                **given,
            )
            for row in range(count)
            for token in range(times)
        ]
        rows = [mx.concatenate(parts[row * times : (row + 1) * times], axis=2) for row in range(count)]
        return mx.concatenate(rows)

    attend.of_one_row = attention  # type: ignore[attr-defined]
    return attend


def _called(rest: tuple[Any, ...], given: dict[str, Any]) -> list[Any]:
    """Scale, mask and what else follows the cache, by place; takes the first two out of `given`."""
    places = list(rest)
    for name in ("scale", "mask")[len(places) :]:
        places.append(given.pop(name))
    return places
