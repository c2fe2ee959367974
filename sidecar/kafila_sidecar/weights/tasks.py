"""Tasks that raise typed errors as they are, and threads that are waited for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ParamSpec

from kafila_sidecar.errors import KafilaError

P = ParamSpec("P")


@asynccontextmanager
async def tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """An asyncio.TaskGroup out of which the first KafilaError comes as itself; bugs come as the group they are."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except ExceptionGroup as errors:
        typed, others = errors.split(KafilaError)
        if typed is None or others is not None:
            raise
        raise typed.exceptions[0] from None


async def uninterrupted(call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Runs `call` in a thread; cancelled, it still waits for the thread, which would otherwise outlive its lock."""
    running = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise
