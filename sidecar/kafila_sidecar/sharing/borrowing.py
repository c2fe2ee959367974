"""Asks one member for units, and checks each before it is kept."""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence

from google.protobuf.message import DecodeError

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput, Refused, from_code
from kafila_sidecar.foreign import line
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.session.coordination.messages import LONGEST_SENTENCE
from kafila_sidecar.sharing.courtesy import CHUNK_BYTES
from kafila_sidecar.sharing.lending import MOST_ASKED_BYTES, MOST_UNITS
from kafila_sidecar.sharing.vouching import Voucher, Vouchers
from kafila_sidecar.weights.fetching.landing import Landing, UnitWriter
from kafila_sidecar.weights.format.units import Unit

ANSWER_S = 20.0
LONGEST_TOLD_BYTES = CHUNK_BYTES + 4096
"""How long each message of a source is waited for."""
CHECKED_OF = 16
"""One of so many units is compared with what the model host has."""


class Wrong(Denied):
    """Bytes that are not what they should be. `by`: the member whose word they came with."""

    def __init__(self, by: str, unit: Unit) -> None:
        super().__init__(f"{by} gave wrong bytes of {unit.file} (from {unit.start}): they are fetched elsewhere")
        self.by = by


class Borrower:
    """Takes units from members. `trusts`: whether a member's word counts; `draw` picks one of so many."""

    def __init__(
        self,
        *,
        revision: str,
        vouchers: Vouchers,
        trusts: Callable[[str], bool],
        draw: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        self._revision = revision
        self._vouchers = vouchers
        self._trusts = trusts
        self._draw = draw
        self._at = self._picked = 0
        self.borrowed_bytes = 0
        self.checked_bytes = 0  # that the model host was asked for a second time

    async def take(self, link: Link, units: Sequence[Unit], landing: Landing) -> list[Unit]:
        """Brings the units here; those that the peer has not after all.

        Raises:
            Wrong: somebody gave other bytes than it should have; what came before is kept.
            KafilaError: the peer can't be asked, or vanished.
        """
        absent: list[Unit] = []
        names = sorted(landing.manifest.files)
        for asked in asks(units):
            with landing.writer() as writer:
                stream = await link.open(StreamKind.WEIGHTS)
                try:
                    await stream.send(ask_for(self._revision, names, asked))
                    absent += await self._receive(stream, asked, landing, writer)
                finally:
                    stream.reset()
        return absent

    async def _receive(self, stream: Stream, units: Sequence[Unit], landing: Landing, writer: UnitWriter) -> list[Unit]:
        absent: list[Unit] = []
        for unit in units:
            first = await told_by(stream)
            if first.WhichOneof("told") == "absent":
                absent.append(unit)
                continue
            voucher, data = await self._proved(stream, unit, first)
            if not self._trusts(voucher.by):
                absent.append(unit)
                continue
            if self._is_due():
                await self._compare(unit, voucher, landing)
            await asyncio.to_thread(writer.put, unit, data)
            self._vouchers.keep(unit, voucher)
            self.borrowed_bytes += len(data)
        return absent

    async def _proved(self, stream: Stream, unit: Unit, first: ring_pb2.WeightsTold) -> tuple[Voucher, bytes]:
        """A unit as somebody vouches for it. Raises Wrong if nobody does."""
        data = bytearray()
        while len(data) < unit.size_bytes:
            told = await told_by(stream)
            data += told.data
            if not told.data or len(data) > unit.size_bytes:
                raise InvalidInput(f"{stream.peer} sends something else than the weights that were asked for")
        try:
            voucher = self._vouchers.check(unit, first.vouched)
        except Denied:
            raise Wrong(stream.peer, unit) from None
        if await asyncio.to_thread(digest_of, data) != voucher.sha256:
            raise Wrong(stream.peer, unit)
        return voucher, bytes(data)

    def _is_due(self) -> bool:
        """True for one of every so many units, drawn anew each time."""
        if self._at == 0:
            self._picked = self._draw(CHECKED_OF)
        is_due = self._at == self._picked
        self._at = (self._at + 1) % CHECKED_OF
        return is_due

    async def _compare(self, unit: Unit, voucher: Voucher, landing: Landing) -> None:
        """With the model host, where there is one that answers. Raises Wrong for who vouched."""
        there = await landing.digest(unit) if landing.digest is not None else None
        if there is None:
            return
        self.checked_bytes += unit.size_bytes
        if there != voucher.sha256:
            raise Wrong(voucher.by, unit)


async def told_by(stream: Stream) -> ring_pb2.WeightsTold:
    """The source's next word. Raises what it refuses with, Refused when it stops before the end."""
    message = await stream.receive(ANSWER_S, most_bytes=LONGEST_TOLD_BYTES)
    if message is None:
        raise Refused(f"{stream.peer} stopped before all was there")
    try:
        told = ring_pb2.WeightsTold.FromString(message)
    except DecodeError:
        raise InvalidInput(f"{stream.peer} sends weights that can't be read") from None
    if told.HasField("refusal"):
        raise from_code(
            told.refusal.code, f"{stream.peer} gives no weights: {line(told.refusal.sentence, LONGEST_SENTENCE)}"
        )
    return told


def asks(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    """The same units in as many as one ask may name."""
    asked: list[Unit] = []
    for unit in units:
        size_bytes = sum(one.size_bytes for one in asked) + unit.size_bytes
        if asked and (len(asked) == MOST_UNITS or size_bytes > MOST_ASKED_BYTES):
            yield asked
            asked = []
        asked.append(unit)
    if asked:
        yield asked


def ask_for(revision: str, names: Sequence[str], units: Sequence[Unit]) -> bytes:
    """`names`: of all weight files, sorted."""
    told = [ring_pb2.Unit(file=names.index(unit.file), start=unit.start, end=unit.end) for unit in units]
    return ring_pb2.WeightsAsk(units=ring_pb2.Units(revision=revision, units=told)).SerializeToString()


def digest_of(data: bytes | bytearray) -> bytes:
    return hashlib.sha256(data).digest()
