"""What a token takes a stage beside the model: frames, the link below them, and the hand-overs between threads.

Measured before there is a session: a frame goes there and back between two ends of a link on this machine, as it will
from stage to stage, and each end takes it apart, waits for the MLX thread and makes another. Half of it is a stage's.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.models.family import text_of
from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.runtime.mlx_thread import CallingThread
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.frames.hop import frame_of, state_of
from kafila_sidecar.serving.frames.wire import decode, encode
from kafila_sidecar.session.coordination.effects import Json
from kafila_sidecar.session.membership.identity import Identity, make_identity

log = logging.getLogger(__name__)

DEADLINE_S = 5.0  # else a plan leaves it out
ROUND_TRIPS = 60
WARM_UPS = 20
WIDTH = 4096  # where a configuration tells none
MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _End:
    endpoint: Endpoint
    identity: Identity


class Handling:
    """This machine's, measured once for each width of a hidden state."""

    def __init__(self, mlx: CallingThread) -> None:
        self._mlx = mlx
        self._known: dict[int, float] = {}

    async def entry(self, config: Mapping[str, Any]) -> Json:
        """The planner's field for it; none where it can't be measured."""
        told = text_of(config).get("hidden_size")
        width = told if isinstance(told, int) and 0 < told <= MOST_BYTES // 2 else WIDTH
        if width not in self._known:
            try:
                async with asyncio.timeout(DEADLINE_S):
                    self._known[width] = await self._measured(width)
            except (KafilaError, OSError, TimeoutError) as error:
                log.warning("handling_not_measured error=%r", error)
                return {}
        return {"handling_s": self._known[width]}

    async def _measured(self, width: int) -> float:
        ends = [_End(Endpoint.open(host="127.0.0.1"), make_identity()) for _ in range(2)]
        try:
            here, _ = await asyncio.gather(*self._linked(*ends))
            stream = await here.open(StreamKind.ACTIVATIONS)
            state = HiddenState(bytes(2 * width), "bfloat16", (1, 1, width), 0)
            taken_s = [await self._there_and_back(stream, state) for _ in range(WARM_UPS + ROUND_TRIPS)]
            return median(taken_s[WARM_UPS:]) / 2
        finally:
            await asyncio.gather(*(end.endpoint.close() for end in ends))

    def _linked(self, one: _End, other: _End) -> list["asyncio.Task[Link]"]:
        session, key = os.urandom(16), os.urandom(32)
        return [
            asyncio.create_task(
                mine.endpoint.connect(
                    session=session,
                    key=key,
                    me=mine.identity,
                    peer_name="itself",
                    peer_fingerprint=yours.identity.fingerprint,
                    candidates=yours.endpoint.candidates(),
                    deadline_s=DEADLINE_S,
                    on_stream=self._answer,
                )
            )
            for mine, yours in ((one, other), (other, one))
        ]

    async def _there_and_back(self, stream: Stream, state: HiddenState) -> float:
        clock = asyncio.get_running_loop().time
        began = clock()
        await stream.send(*encode(frame_of(state, epoch=1, sequence=1, needs_output=True)))
        await self._take(stream)
        return clock() - began

    async def _answer(self, stream: Stream) -> None:
        while (state := await self._take(stream)) is not None:
            await stream.send(*encode(frame_of(state, epoch=1, sequence=1, needs_output=True)))

    async def _take(self, stream: Stream) -> HiddenState | None:
        message = await stream.receive(most_bytes=MOST_BYTES)
        if message is None:
            return None
        state = state_of(decode(message))
        await self._mlx.run(_nothing)
        return state


def _nothing() -> None:
    """What the MLX thread is asked for."""
