"""How weights keep out of the way of frames: in small pieces, and one at a time while a ring is at work.

What one link sends goes by rank (`send_last`), so a frame waits for weights only that are in the network already: at
most `AHEAD_BYTES`, or one `CHUNK_BYTES` in each `PAUSE_S` once frames have been seen on any link of the session.
"""

import asyncio
from collections.abc import Callable

from kafila_sidecar.net.link.stream import Stream

CHUNK_BYTES = 64 << 10
AHEAD_BYTES = 1 << 20
"""Not confirmed yet, of one stream; a megabyte is 80 ms of 100 Mbit/s."""
QUIET_S = 0.5
"""After so long without a frame nobody decodes."""
PAUSE_S = 0.05


class Courtesy:
    """`quiet_s`: seconds since the last frame on any of the links."""

    def __init__(self, quiet_s: Callable[[], float]) -> None:
        self._quiet_s = quiet_s

    async def before_chunk(self, stream: Stream) -> None:
        """Returns when the next chunk may go."""
        if self._quiet_s() >= QUIET_S:
            await stream.until_unacknowledged(AHEAD_BYTES)
            return
        await stream.until_unacknowledged(0)
        await asyncio.sleep(PAUSE_S)
