"""The caches of a shard's sequences: made at their first frame, gone at their release. MLX thread only."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import mlx.core as mx
from mlx.utils import tree_map

from kafila_sidecar.errors import InvalidInput, NotFound

Make = Callable[[], list[Any]]
Kind = tuple[Any, ...]
Saved = list[tuple[Any, dict[str, Any]]]
REWINDABLE = frozenset({"KVCache", "QuantizedKVCache", "ConcatenateKVCache"})
RESTORABLE = frozenset({"RotatingKVCache", "ArraysCache"})  # that come back as they were from a copy of what they hold
LONGEST_RUN = 8  # tokens that are run at once where some of them were run before


class Undoable(Protocol):
    """What was built over the caches of some sequences and not evaluated yet; see `ahead.Ahead`."""

    wants: object

    @property
    def caches(self) -> "Sequence[SequenceCache]": ...
    def undo(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a sequence was before a run with guesses, where its caches can't forget: the position, what they held, and
    what was run, [1, T, …]."""

    position: int
    saved: Saved
    given: mx.array


class SequenceCache:
    """One sequence's caches, with a slot for each that the architecture's own code expects.

    The slot of a cache that isn't ours borrows one of ours of the same kind, since masks are built from it; with none
    of that kind, a shadow that only counts stands in.
    """

    def __init__(self, made: list[Any], own: Collection[int]) -> None:
        self.position = 0  # tokens taken in so far
        self._ours = [made[slot] for slot in own]
        first = {kind_of(cache): cache for cache in reversed(made)}
        first |= {kind_of(cache): cache for cache in reversed(self._ours)}
        self.slots: list[Any] = [cache if slot in own else first[kind_of(cache)] for slot, cache in enumerate(made)]
        kinds = {kind_of(cache) for cache in self._ours}
        self._shadows = [cache for kind, cache in first.items() if kind not in kinds]
        self.ahead: Undoable | None = None  # the step at `position`, if it was built already
        self._leaves = [part for cache in self._ours for part in parts_of(cache) if not hasattr(part, "caches")]
        self._snapshot: Snapshot | None = None
        self._again: mx.array | None = None  # certain, and to be run before what comes at `position`
        self._running_again = 0  # tokens, in the run that is under way
        self._has_guesses = False  # that run

    def drop_ahead(self) -> None:
        """What was built ahead is not what comes."""
        ahead, self.ahead = self.ahead, None
        if ahead is not None:
            ahead.undo()

    def saved(self) -> Saved:
        """All that `restore` needs to undo a step that was built and not evaluated. While this is kept, evaluating the
        step would copy what it changes."""
        return [(part, _kept(vars(part))) for cache in self._ours for part in parts_of(cache)]

    def given(self, rows: mx.array, *, has_guesses: bool = False) -> tuple[mx.array, int]:
        """What to run for these tokens [1, T, …], and how many tokens before them that is: such as were run before,
        taken back with others, and are certain. has_guesses: it may be gone back into this run."""
        again, self._again = self._again, None
        count = 0 if again is None else again.shape[1]
        if again is not None:
            rows = mx.concatenate([again, rows], axis=1)
        self._running_again, self._has_guesses = count, has_guesses
        self._snapshot = None
        if has_guesses and not all(map(can_rewind, self._leaves)):
            self._snapshot = Snapshot(self.position - count, self._restorable(), rows)
        return rows, count

    def advance(self, tokens: int) -> None:
        """Counts tokens whose frame has gone through our blocks."""
        self.position += tokens
        for shadow in self._shadows:
            _count(shadow, tokens + self._running_again)
        if not self._has_guesses:
            self._snapshot = None  # there is nothing to go back for
        self._running_again, self._has_guesses = 0, False

    def lengthen(self, times: int) -> None:
        """Repeats what the caches have: a long text without the work, and without sense."""
        for cache in self._ours:
            _repeat(cache, times)

    def can_go_back(self, position: int) -> bool:
        """Whether the tokens from `position` on can be forgotten."""
        if all(map(can_rewind, self._leaves)):
            return True
        return self._snapshot is not None and 0 <= position - self._snapshot.position < LONGEST_RUN

    def go_back(self, position: int) -> None:
        """Forgets the tokens from `position` on, which were guesses.

        Raises: InvalidInput where one of the caches can't forget them.
        """
        if not self.can_go_back(position):
            raise InvalidInput(f"a frame goes back to {position} tokens, which this architecture's caches can't")
        stands_at = position
        if snapshot := self._snapshot:
            stands_at = snapshot.position
            restore(snapshot.saved)
            self._again = snapshot.given[:, : position - stands_at] if position > stands_at else None
        tokens = self.position - stands_at
        for cache in filter(can_rewind, self._leaves):
            trimmed = cache.trim(tokens)
            assert trimmed == tokens, f"{type(cache).__name__} forgot {trimmed} tokens, not {tokens}"
        for shadow in self._shadows:
            _count(shadow, -tokens)
        self.position, self._snapshot = position, None

    @property
    def has_some_again(self) -> bool:
        """Whether the next run has tokens of an earlier one before its own."""
        return self._again is not None

    def _restorable(self) -> Saved:
        return [(leaf, _kept(vars(leaf))) for leaf in self._leaves if not can_rewind(leaf)]

    @property
    def arrays(self) -> list[Any]:
        """What has to be evaluated when the output of a frame is not."""
        return [cache.state for cache in self._ours]

    @property
    def nbytes(self) -> int:
        """What our caches take; one that has nothing yet takes nothing."""
        return sum(cache.nbytes for cache in self._ours if not cache.empty())


class Sequences:
    """All sequences of one shard, by the session's sequence numbers.

    make: makes the architecture's list of caches. own: which of its slots are this stage's.
    """

    def __init__(self, make: Make, own: Collection[int]) -> None:
        self._make, self._own = make, own
        self._caches: dict[int, SequenceCache] = {}

    def at(self, sequence: int, position: int) -> SequenceCache:
        """The caches of a sequence whose next frame is at `position`; new ones at position 0. What came after a lower
        position than theirs was a guess, and is forgotten.

        Raises: NotFound when the sequence was released or never began; InvalidInput when a frame is missing, or goes
        back where that can't be.
        """
        cache = self._caches.get(sequence)
        if cache is None:
            if position != 0:
                raise NotFound(f"sequence {sequence} is not known here, yet its frame is at position {position}")
            cache = self._caches[sequence] = SequenceCache(self._make(), self._own)
        cache.drop_ahead()
        if 0 < position < cache.position:
            cache.go_back(position)
        if cache.position != position:
            raise InvalidInput(f"sequence {sequence} stands at {cache.position} tokens, its frame at {position}")
        return cache

    def next(self, sequence: int) -> SequenceCache:
        """The caches of a sequence where it stands; raises as `check`."""
        self.check(sequence)
        cache = self._caches[sequence]
        cache.drop_ahead()
        return cache

    def standing(self, rows: Sequence[tuple[int, int]]) -> "list[SequenceCache] | None":
        """The caches of these sequences, each at its position, to build their next step over; None when one of them
        isn't here any more, or stands elsewhere: then another step came before this could be built."""
        caches = [self._caches.get(sequence) for sequence, _ in rows]
        if any(cache is None or cache.position != row[1] for cache, row in zip(caches, rows, strict=True)):
            return None
        return [self.next(sequence) for sequence, _ in rows]

    def ahead(self, rows: Sequence[tuple[int, int]], wants: object) -> Any:
        """What was built of the next step of just these sequences, each at its position, if it is this that is wanted;
        else None."""
        first = self._caches.get(rows[0][0])
        ahead = None if first is None else first.ahead
        if ahead is None or ahead.wants != wants or len(ahead.caches) != len(rows):
            return None
        for (sequence, position), cache in zip(rows, ahead.caches, strict=True):
            if self._caches.get(sequence) is not cache or cache.position != position:
                return None
        for cache in ahead.caches:
            cache.ahead = None
        return ahead

    def under_way(self, sequence: int) -> Undoable | None:
        """What was built of a sequence's next step, whatever is wanted."""
        cache = self._caches.get(sequence)
        return None if cache is None else cache.ahead

    def check(self, sequence: int) -> None:
        """Raises: NotFound for a sequence that was released or never began."""
        if sequence not in self._caches:
            raise NotFound(f"sequence {sequence} is not known here: it was released or never began")

    def made(self) -> SequenceCache:
        """Caches of a sequence that is none of the session's."""
        return SequenceCache(self._make(), self._own)

    def can_go_back(self, sequence: int, position: int) -> bool:
        """Whether the sequence is here and can forget its tokens from `position` on."""
        cache = self._caches.get(sequence)
        return cache is not None and cache.can_go_back(position)

    def position(self, sequence: int) -> int:
        """Tokens taken in so far; 0 for a sequence that hasn't begun."""
        cache = self._caches.get(sequence)
        return 0 if cache is None else cache.position

    def release(self, sequence: int) -> None:
        """Frees a sequence's caches; one that isn't there is nobody's fault."""
        if (cache := self._caches.pop(sequence, None)) is not None:
            cache.drop_ahead()  # it refers to them, and they to it: both would stay until cycles are collected
            mx.clear_cache()

    def release_all(self) -> None:
        for sequence in list(self._caches):
            self.release(sequence)

    @property
    def nbytes(self) -> int:
        """What the caches of all sequences take."""
        return sum(cache.nbytes for cache in self._caches.values())

    def __len__(self) -> int:
        return len(self._caches)


def restore(saved: Saved) -> None:
    """Undoes what was built since."""
    for part, fields in saved:
        part.__dict__.update(fields)


def parts_of(cache: Any) -> list[Any]:
    """A cache, and those that it is made of."""
    return [cache, *(part for one in getattr(cache, "caches", ()) for part in parts_of(one))]


def _kept(value: Any) -> Any:
    """The same value, for which what is later put into its arrays and lists makes no difference."""
    match value:
        case mx.array():
            return value[...] if value.ndim else value
        case list() | tuple():
            return type(value)(_kept(one) for one in value)
        case dict():
            return {name: _kept(one) for name, one in value.items()}
    return value


def can_rewind(cache: Any) -> bool:
    """Whether a cache can forget its last tokens at any length; one with a window can only until that is full."""
    parts = getattr(cache, "caches", None)
    if parts is not None:
        return all(can_rewind(part) for part in parts)
    return type(cache).__name__ in REWINDABLE


def can_go_back(cache: Any) -> bool:
    """Whether a cache can be what it was, be it by forgetting its last tokens or from a copy."""
    leaves = [part for part in parts_of(cache) if not hasattr(part, "caches")]
    return all(can_rewind(leaf) or type(leaf).__name__ in RESTORABLE for leaf in leaves)


def has_window(cache: Any) -> bool:
    """Whether a cache keeps no more than so many tokens, the latest in the place of the oldest."""
    return any(hasattr(part, "max_size") for part in parts_of(cache))


def kind_of(cache: Any) -> Kind:
    """What tells caches apart for masks: the class, how much it keeps, and the same of what it is made of."""
    parts = tuple(kind_of(part) for part in getattr(cache, "caches", ()))
    return (type(cache).__name__, getattr(cache, "max_size", None), getattr(cache, "chunk_size", None), *parts)


def _repeat(cache: Any, times: int) -> None:
    for part in getattr(cache, "caches", ()):
        _repeat(part, times)
    if getattr(cache, "keys", None) is None:
        return
    had, window = cache.offset, getattr(cache, "max_size", None)
    if window is not None:
        times = max(times, -(-window // had) + 1)  # so that it is full: then it keeps its tokens in another order
    for name in ("keys", "values"):
        setattr(cache, name, tree_map(partial(_tiled, min(had, window or had), times, window), getattr(cache, name)))
    cache.offset = times * had
    if window is not None:
        cache._idx = cache.keys.shape[2]


def _tiled(length: int, times: int, most: int | None, array: mx.array) -> mx.array:
    return mx.tile(array[..., :length, :], (1, 1, times, 1))[..., :most, :]


def _count(shadow: Any, tokens: int) -> None:
    for part in getattr(shadow, "caches", ()):
        _count(part, tokens)
    if hasattr(shadow, "offset"):
        shadow.offset += tokens
