"""Giving memory back to the system: what a flood made a process take, the C library else keeps for the next one."""

import asyncio
import ctypes
import sys

EVERY_S = 15.0


async def give_back_regularly() -> None:
    """Until cancelled; glibc's `malloc_trim`, where that is the C library, on a thread of its own."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    while trim is not None:
        await asyncio.sleep(EVERY_S)
        await asyncio.to_thread(trim, 0)
