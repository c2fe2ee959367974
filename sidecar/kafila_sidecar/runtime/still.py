"""Waiting for what may stand still for ever: a call of a model's thread, on a device or a disk that does not answer."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from kafila_sidecar.errors import TimedOut

T = TypeVar("T")

LOOKS = 10
LOOK_S = 60.0  # a block of weights, the largest thing that comes at once, may take ten minutes from a slow disk


async def unless_still(
    outcome: "asyncio.Future[T]",
    *,
    what: str,
    sign: Callable[[], object] = lambda: None,
    look_s: float = LOOK_S,
) -> T:
    """The outcome, which is cancelled where nobody waits for it any more. sign: is another one whenever something has
    moved. It is looked at now and then, and counts by looks: a process that was stopped itself has none meanwhile.

    Raises: TimedOut when nothing has moved for ten looks in a row; what the outcome raises.
    """
    seen, left = sign(), LOOKS
    try:
        while not (await asyncio.wait((outcome,), timeout=look_s))[0]:
            before, seen = seen, sign()
            left = LOOKS if seen != before else left - 1
            if not left:
                raise TimedOut(
                    f"{what} has not moved for {LOOKS * look_s:.0f} s: this machine's disk or device does not answer"
                )
        return outcome.result()
    finally:
        outcome.cancel()
