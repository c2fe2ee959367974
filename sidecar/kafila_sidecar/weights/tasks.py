"""Tasks that raise typed errors as they are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafila_sidecar.errors import KafilaError


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
