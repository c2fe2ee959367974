"""Answers members that ask for weights: what is here of the session's checkpoint, within bounds, and nothing else."""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from google.protobuf.message import DecodeError

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Exhausted, InvalidInput, Refused, TimedOut
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.sharing.courtesy import CHUNK_BYTES, Courtesy
from kafila_sidecar.sharing.vouching import Vouchers
from kafila_sidecar.weights.checkpoint import Checkpoint
from kafila_sidecar.weights.format.units import Unit, is_unit

log = logging.getLogger(__name__)

MOST_UNITS = 64
MOST_ASKED_BYTES = 32 << 20
"""Of one ask."""
LONGEST_ASK_BYTES = 64 << 10
MOST_STREAMS = 8
MOST_STREAMS_EACH = 2
"""At once, of all members and of one."""
ASK_S = 10.0
STALL_S = 30.0
"""How long the asker may take for its ask, and for each chunk."""


class Lender:
    """`checkpoint` gives None while this member does not know it itself."""

    def __init__(self, *, checkpoint: Callable[[], Checkpoint | None], vouchers: Vouchers, courtesy: Courtesy) -> None:
        self._checkpoint = checkpoint
        self._vouchers = vouchers
        self._courtesy = courtesy
        self._busy: Counter[str] = Counter()
        self.lent_bytes = 0  # of units

    async def answer(self, stream: Stream) -> None:
        """One ask. Raises KafilaError when the stream broke, or the asker takes nothing more."""
        try:
            with self._place(stream.peer):
                async for told in self._told(parsed(await stream.receive(ASK_S, most_bytes=LONGEST_ASK_BYTES))):
                    await self._send(stream, told)
        except (InvalidInput, Refused, Exhausted) as error:
            log.info("weights_refused peer=%s code=%s", stream.peer, error.code)
            refusal = ring_pb2.Refusal(code=error.code, sentence=str(error))
            await self._send(stream, ring_pb2.WeightsTold(refusal=refusal))

    # ---- Private

    @contextmanager
    def _place(self, peer: str) -> Iterator[None]:
        if self._busy.total() >= MOST_STREAMS or self._busy[peer] >= MOST_STREAMS_EACH:
            raise Exhausted("too many ask for weights here at once: ask again in a moment")
        self._busy[peer] += 1
        try:
            yield
        finally:
            self._busy[peer] -= 1

    async def _told(self, ask: ring_pb2.WeightsAsk) -> AsyncIterator[ring_pb2.WeightsTold]:
        checkpoint = self._checkpoint()
        if checkpoint is None:
            raise Refused("this member does not know the session's model yet")
        if ask.WhichOneof("ask") == "describe":
            for content in checkpoint.described():
                for told in chunks(content):
                    yield told
            return
        for unit in asked_units(checkpoint, ask.units):
            data = await asyncio.to_thread(checkpoint.unit, unit)
            if data is None:
                yield ring_pb2.WeightsTold(absent=ring_pb2.Absent())
                continue
            yield ring_pb2.WeightsTold(vouched=await asyncio.to_thread(self._vouched, unit, data))
            for told in chunks(data):
                yield told
            self.lent_bytes += len(data)

    def _vouched(self, unit: Unit, data: bytes) -> ring_pb2.Vouched:
        voucher = self._vouchers.for_unit(unit, hashlib.sha256(data).digest())
        return ring_pb2.Vouched(by=voucher.by, sha256=voucher.sha256, signature=voucher.signature)

    async def _send(self, stream: Stream, told: ring_pb2.WeightsTold) -> None:
        try:
            async with asyncio.timeout(STALL_S):
                if told.WhichOneof("told") == "data":
                    await self._courtesy.before_chunk(stream)
                await stream.send(told.SerializeToString())
        except TimeoutError:
            raise TimedOut(f"{stream.peer} took no weights for {STALL_S:.0f} s") from None


def parsed(message: bytes | None) -> ring_pb2.WeightsAsk:
    try:
        ask = ring_pb2.WeightsAsk.FromString(message or b"")
    except DecodeError:
        raise InvalidInput("an ask for weights that can't be read") from None
    if not ask.WhichOneof("ask"):
        raise InvalidInput("an ask for no weights")
    return ask


def asked_units(checkpoint: Checkpoint, asked: ring_pb2.Units) -> list[Unit]:
    """Raises Refused or InvalidInput for what is not of this checkpoint, or too much."""
    if asked.revision != checkpoint.revision:
        raise Refused("this session runs another revision than is asked for")
    names = sorted(checkpoint.manifest.files)
    if len(asked.units) > MOST_UNITS or any(unit.file >= len(names) for unit in asked.units):
        raise InvalidInput(f"an ask for more than {MOST_UNITS} units, or of files that there are not")
    units = [Unit(names[unit.file], unit.start, unit.end) for unit in asked.units]
    if not all(is_unit(checkpoint.manifest, unit) for unit in units):
        raise InvalidInput("an ask for bytes that are no unit of this checkpoint")
    if sum(unit.size_bytes for unit in units) > MOST_ASKED_BYTES:
        raise InvalidInput(f"an ask for more than {MOST_ASKED_BYTES} bytes at once")
    return units


def chunks(data: bytes) -> Iterator[ring_pb2.WeightsTold]:
    for at in range(0, len(data), CHUNK_BYTES):
        yield ring_pb2.WeightsTold(data=data[at : at + CHUNK_BYTES])
