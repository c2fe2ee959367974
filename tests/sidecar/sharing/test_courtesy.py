"""Weights keep out of the way of frames."""

import asyncio

import pytest

from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.sharing.courtesy import AHEAD_BYTES, CHUNK_BYTES, Courtesy
from tests.sidecar.serving.streams import StreamEnd

DECODING, IDLE = 0.01, 10.0


class Unconfirmed(StreamEnd):
    """An end whose peer has not confirmed the last so many bytes."""

    pending = 0

    def unacknowledged(self, stream_id: int) -> int:
        return self.pending


@pytest.mark.parametrize(
    ("quiet_s", "too_many", "few_enough"),
    [(IDLE, AHEAD_BYTES + 1, AHEAD_BYTES), (DECODING, CHUNK_BYTES, 0), (DECODING, 1, 0)],
)
async def test_chunk_when_too_much_is_on_its_way_then_it_waits_for_the_peers_word(
    quiet_s: float, too_many: int, few_enough: int
) -> None:
    end = Unconfirmed("bob")
    stream, end.pending = Stream(end, 0), too_many
    waiting = asyncio.create_task(Courtesy(lambda: quiet_s).before_chunk(stream))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    end.pending = few_enough
    stream.acknowledged()
    await asyncio.wait_for(waiting, 5)


async def test_chunk_when_nobody_decodes_then_it_goes_at_once() -> None:
    await Courtesy(lambda: IDLE).before_chunk(Stream(Unconfirmed("bob"), 0))
