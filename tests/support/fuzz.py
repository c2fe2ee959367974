"""Hostile inputs for a decoder of bytes from outside: nothing but typed errors comes out, and nothing is kept.

`KAFILA_FUZZ_INPUTS` says how many inputs each decoder gets (10,000 unless told), `KAFILA_FUZZ_SEED` where they start.
"""

import gc
import logging
import os
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from random import Random
from typing import Self

from kafila_sidecar.errors import KafilaError

INPUTS = int(os.environ.get("KAFILA_FUZZ_INPUTS", "10000"))
SEED = int(os.environ.get("KAFILA_FUZZ_SEED", "0"))
WATCHED = 1000  # inputs at the end during which memory is measured, half of them where there are fewer than twice that
MOST_GROWTH_BYTES = 128 * 1024  # during these; caches and bounded queues have filled up by then

_INTERESTING = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff\x0f", b"\x00" * 32, b"\xff" * 32)

Read = Callable[[bytes], object]


def mutations(samples: Sequence[bytes], *, seed: int, inputs: int) -> Iterator[bytes]:
    """Random bytes, and valid samples with bytes changed, added, dropped, repeated, or joined with another's."""
    chance = Random(f"{SEED} {seed}")
    for number in range(inputs):
        if number % 8 == 0:
            yield chance.randbytes(chance.choice((0, 1, 3, 20, 200, 2000)))
            continue
        bad = bytearray(chance.choice(samples or [b""]))
        for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
            _mutate(bad, samples, chance)
        yield bytes(bad)


def _mutate(bad: bytearray, samples: Sequence[bytes], chance: Random) -> None:
    place = chance.randrange(len(bad) + 1)
    length = chance.choice((1, 1, 2, 8, 40))
    match chance.randrange(7):
        case 0:
            bad[place : place + 1] = chance.randbytes(1)
        case 1 if bad:
            bad[place % len(bad)] ^= 1 << chance.randrange(8)
        case 2:
            bad[place:place] = chance.randbytes(length)
        case 3:
            del bad[place : place + length]
        case 4:
            bad[place : place + length] = chance.choice(_INTERESTING)
        case 5:
            bad[place:place] = bad[place : place + length] * chance.choice((1, 2, 30))
        case 6:
            other = chance.choice(samples or [b""])
            bad[place:] = other[chance.randrange(len(other) + 1) :]


def fuzz(
    read: Read,
    samples: Sequence[bytes],
    *,
    seed: int = 0,
    inputs: int = INPUTS,
    errors: tuple[type[Exception], ...] = (KafilaError,),
    growth_bytes: int = MOST_GROWTH_BYTES,
) -> int:
    """Gives `read` the samples and then so many hostile inputs; how many of all these it took.

    Any exception but `errors` fails the test and shows the input; so does memory that grows by more than
    `growth_bytes`, for those who hold a bounded state of their own size.
    """
    taken, watched = 0, min(WATCHED, inputs // 2)
    with _silence(), _Watch() as watch:
        for number, data in enumerate(chain(samples, mutations(samples, seed=seed, inputs=inputs))):
            if number == len(samples) + inputs - watched:
                watch.begin()
            try:
                read(data)
            except errors:
                continue
            except Exception as error:
                raise AssertionError(f"input {number} of seed {SEED}/{seed}, {data.hex()}: {error!r}") from error
            taken += 1
        growth = watch.growth_bytes()
    assert growth <= growth_bytes, f"{growth} bytes are kept after {watched} hostile inputs"
    return taken


@contextmanager
def _silence() -> Iterator[None]:
    """No log lines: pytest would keep them all."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


class _Watch:
    """How much memory Python keeps from `begin` on."""

    def __init__(self) -> None:
        self._before = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()

    def begin(self) -> None:
        gc.collect()
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]

    def growth_bytes(self) -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - self._before
