"""A draft model's greedy guesses. MLX thread only, but for `lacks`."""

from collections.abc import Sequence

from kafila_sidecar.errors import Refused
from kafila_sidecar.runtime.shard.finite import NotFinite
from kafila_sidecar.runtime.shard.picking import Pick
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.text.options import SamplingOptions
from kafila_sidecar.runtime.text.sample import Sampler

GREEDY = SamplingOptions(temperature=0.0, seed=0)
LATEST = 64  # tokens; what was guessed of a text wrongly is among them


class DraftModel:
    """Follows the texts of requests, each in caches of its own. shard: all of its blocks. size: ids from there on are
    none that the session's model knows; None: it knows all.

    Raises: Refused for one whose caches can't forget what was guessed wrongly.
    """

    def __init__(self, shard: Shard, size: int | None) -> None:
        if not shard.all_rewind:
            shard.close()
            raise Refused("a draft model has to forget what it guessed wrongly, and this one's caches can't")
        self._shard = shard
        self._size = size
        self._read: dict[int, list[int]] = {}  # what the caches have, by request

    def lacks(self, request: int, text: Sequence[int]) -> int:
        """How many of a text's tokens are still to be read, but for the last one."""
        return max(0, len(text) - 1 - len(self._read.get(request, ())))

    def read(self, request: int, tokens: Sequence[int]) -> None:
        """So many more tokens of its text, where it stands.

        Raises: NotFinite.
        """
        self._shard.embed_and_blocks(request, tokens)
        self._read.setdefault(request, []).extend(tokens)

    def guess(self, request: int, text: Sequence[int], most: int) -> list[int]:
        """The tokens that it takes for the likeliest after a text, one after another; none where it can't tell."""
        had = self._went_back(request, text)
        sampler = Sampler(GREEDY, size=self._size)
        guesses: list[int] = []
        state = self._shard.embed_and_blocks(request, text[len(had) :])
        had += text[len(had) :]
        while len(guesses) < most:
            goes_on = len(guesses) + 1 < most
            [picked] = self._shard.pick([Pick(request, state.last_token, sampler, goes_on)])
            if isinstance(picked, NotFinite):
                break
            guesses.append(picked.token)
            if picked.state is None:
                break
            had.append(picked.token)
            state = picked.state
        return guesses

    def forget(self, request: int) -> None:
        """The request is over."""
        self._read.pop(request, None)
        self._shard.release(request)

    def close(self) -> None:
        """Frees it."""
        self._shard.close()

    def _went_back(self, request: int, text: Sequence[int]) -> list[int]:
        """What the caches have of a text, less than all of it, once all else is forgotten."""
        had = self._read.setdefault(request, [])
        common = _common(had, text[:-1])
        if common < len(had):
            del had[common:]
            if common:
                self._shard.rewind(request, common)
            else:
                self._shard.release(request)
        return had


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """With how many equal tokens both begin; they seldom differ but at the end."""
    length = min(len(one), len(other))
    at = max(0, length - LATEST)
    if one[:at] != other[:at]:
        at = 0
    while at < length and one[at] == other[at]:
        at += 1
    return at
