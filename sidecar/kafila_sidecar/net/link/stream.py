"""A stream of messages on a link: one kind byte from its opener, then length-prefixed messages both ways."""

import asyncio
import struct
from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.net.errors import BadFrame, LinkLost, PeerReset, ReceiveTimedOut

MAX_MESSAGE_BYTES = 64 << 20
SEND_BUFFER_BYTES = 4 << 20  # unacknowledged bytes of one stream above which `send` waits
_SLICE_BYTES = 256 << 10  # a large message enters the buffer in pieces
_LENGTH = struct.Struct("!I")


class StreamKind(IntEnum):
    """What a stream is for; its opener's first byte."""

    ACTIVATIONS = 1  # frames (RING.md) to the next stage, one way
    REQUEST = 2  # ring.proto: one Request, then Answers until the head finishes
    CONTROL = 3  # ring.proto: sealed Envelopes, both ways
    WEIGHTS = 4  # ring.proto: one WeightsAsk, then WeightsTold; goes behind all other streams
    BURST = 5  # messages that say nothing, one way; the link itself takes them


class Inbox:
    """Bytes of one direction of a stream turned into messages; without I/O.

    Bytes of a message count as consumed once somebody waits for it: a message may be larger than the window, while an
    unread stream holds one window at most.
    """

    def __init__(self) -> None:
        self.consumed = 0  # bytes since the start of the stream
        self.is_finished = False
        self._arrived: deque[bytes] = deque()
        self._arrived_bytes = 0
        self._length: int | None = None  # of the message that is being put together
        self._parts: list[bytes] = []
        self._parts_bytes = 0

    def feed(self, data: bytes, *, is_last: bool) -> None:
        if data:
            self._arrived.append(data)
            self._arrived_bytes += len(data)
        self.is_finished = self.is_finished or is_last

    def take_kind(self) -> int | None:
        """The opener's first byte, when it has come."""
        return self._exactly(1)[0] if self._arrived_bytes else None

    def take(self, most_bytes: int = MAX_MESSAGE_BYTES) -> bytes | None:
        """The next whole message, or None when it is not all here; raises BadFrame when it never will be, and for one
        of more than `most_bytes` before any of it is kept."""
        if self._length is None:
            if self._arrived_bytes < _LENGTH.size:
                self._refuse_end_inside(self._arrived_bytes)
                return None
            (self._length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
            if self._length > most_bytes:
                raise BadFrame(f"a message of {self._length} bytes is over the limit of {most_bytes} bytes")
        while self._arrived and self._parts_bytes < self._length:
            self._absorb(self._length - self._parts_bytes)
        if self._parts_bytes < self._length:
            self._refuse_end_inside(self._length)
            return None
        message = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._length, self._parts, self._parts_bytes = None, [], 0
        return message

    def _refuse_end_inside(self, pending: int) -> None:
        if self.is_finished and pending:
            raise BadFrame("the peer finished its stream inside a message")

    def _absorb(self, wanted: int) -> None:
        part = self._pop(wanted)
        self._parts.append(part)
        self._parts_bytes += len(part)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += self._pop(count - len(data))
        return data

    def _pop(self, wanted: int) -> bytes:
        """At most `wanted` bytes from the front."""
        first = self._arrived.popleft()
        if len(first) > wanted:
            self._arrived.appendleft(first[wanted:])
            first = first[:wanted]
        self._arrived_bytes -= len(first)
        self.consumed += len(first)
        return first


class Carrier(Protocol):
    """What a stream needs of its link."""

    peer: str

    def write(self, stream_id: int, data: bytes | memoryview, *, is_last: bool, flush: bool) -> None: ...
    def unacknowledged(self, stream_id: int) -> int: ...
    def consumed(self, stream_id: int, total: int) -> None: ...
    def give_up(self, stream_id: int) -> None: ...
    def retire(self, stream_id: int) -> None: ...


class Stream:
    """One stream of a link. `kind` is the byte that its opener gave it; one task may send while another receives."""

    def __init__(self, carrier: Carrier, stream_id: int) -> None:
        self.stream_id = stream_id
        self.kind: int | None = None
        self._carrier = carrier
        self._inbox = Inbox()
        self._came = asyncio.Event()
        self._drained = asyncio.Event()
        self._sending = asyncio.Lock()
        self._failure: KafilaError | None = None
        self._sends_no_more = False  # finished or given up here
        self._gets_no_more = False  # finished or reset by the peer

    @property
    def peer(self) -> str:
        """The name of the member at the other end."""
        return self._carrier.peer

    @property
    def unacknowledged(self) -> int:
        """Bytes that are held here until the peer has confirmed them."""
        return self._carrier.unacknowledged(self.stream_id)

    async def send(self, *parts: bytes | memoryview) -> None:
        """Sends the parts as one message, at most 64 MiB; waits while more than 4 MiB are unacknowledged.

        Raises PeerReset, LinkLost. Cancelling inside a message resets the stream, since its rest would be misread.
        """
        views = [memoryview(part).cast("B") for part in parts]
        length = sum(len(view) for view in views)
        if length > MAX_MESSAGE_BYTES:
            raise BadFrame(f"a message of {length} bytes to {self.peer} is over the limit of {MAX_MESSAGE_BYTES} bytes")
        if self.can_send_at_once(length):
            self.send_at_once([views])
            return
        async with self._sending:
            await self._drain()
            if length <= _SLICE_BYTES:
                self._write(b"".join((_LENGTH.pack(length), *views)), flush=True)
            else:
                await self._send_long(length, views)

    def send_at_once(self, messages: Sequence[Sequence[bytes | memoryview]]) -> None:
        """Several messages together, each of parts in bytes, where that can be of all their bytes. Raises as `send`."""
        parts = (part for message in messages for part in (_LENGTH.pack(sum(map(len, message))), *message))
        self._write(b"".join(parts), flush=True)

    def can_send_at_once(self, length: int) -> bool:
        """Whether so many bytes would wait for nobody."""
        return length <= _SLICE_BYTES and not self._sending.locked() and self.unacknowledged <= SEND_BUFFER_BYTES

    async def receive(self, deadline_s: float | None = None, *, most_bytes: int = MAX_MESSAGE_BYTES) -> bytes | None:
        """The next message, or None once the peer has finished; raises ReceiveTimedOut, PeerReset, LinkLost, BadFrame.

        `deadline_s` counts from now; None waits as long as the link stands. `most_bytes`: what the message may have,
        which its length says before any of it is kept.
        """
        if deadline_s is None:
            return await self._next(most_bytes)
        try:
            async with asyncio.timeout(deadline_s):
                return await self._next(most_bytes)
        except TimeoutError:
            raise ReceiveTimedOut(f"{self.peer} sent nothing more for {deadline_s:g} s") from None

    async def until_unacknowledged(self, most_bytes: int) -> None:
        """Returns once the peer has confirmed all but so many bytes, or the stream is over."""
        while self._failure is None and self.unacknowledged > most_bytes:
            self._drained.clear()
            await self._drained.wait()

    def finish(self) -> None:
        """No more messages from here; the other direction goes on."""
        if self._failure is None and not self._sends_no_more:
            self._sends_no_more = True
            self._carrier.write(self.stream_id, b"", is_last=True, flush=True)
            self._retire_when_done()

    def reset(self) -> None:
        """Gives up both directions at once; the peer gets PeerReset, and so does whoever waits here."""
        if self._failure is None:
            self._carrier.give_up(self.stream_id)
            self.fail(PeerReset(f"this stream to {self.peer} was given up here"))

    def peer_gave_up(self, *, is_reset: bool) -> None:
        """The peer sends nothing more (`is_reset`), or wants nothing more."""
        self._gets_no_more = self._gets_no_more or is_reset
        if self._failure is None:
            self._carrier.give_up(self.stream_id)
            self.fail(PeerReset(f"{self.peer} gave this stream up"))
        self._retire_when_done()

    def announce(self, kind: int) -> None:
        """Writes the kind byte; called once, by the opener's link."""
        self.kind = kind
        self._carrier.write(self.stream_id, bytes((kind,)), is_last=False, flush=False)

    def feed(self, data: bytes, *, is_last: bool) -> None:
        """Bytes from the peer, in order."""
        self._gets_no_more = self._gets_no_more or is_last
        if self._failure is None:
            self._inbox.feed(data, is_last=is_last)
            self._came.set()
        self._retire_when_done()

    def take_kind(self) -> bool:
        """On a stream that the peer opened: whether its kind byte has come."""
        self.kind = self._inbox.take_kind()
        return self.kind is not None

    def fail(self, error: KafilaError) -> None:
        """The stream is over: whoever waits on it, or comes to it later, gets `error`."""
        self._failure = self._failure or error
        self._sends_no_more = True
        self._retire_when_done()
        self._came.set()
        self._drained.set()

    def acknowledged(self) -> None:
        """The peer has confirmed more bytes: lets a waiting sender look again."""
        self._drained.set()

    async def _next(self, most_bytes: int) -> bytes | None:
        while True:
            if self._failure is not None and not self._is_readable_to_the_end():
                raise self._failure
            message = self._inbox.take(most_bytes)
            self._carrier.consumed(self.stream_id, self._inbox.consumed)
            if message is not None or self._inbox.is_finished:
                return message
            self._came.clear()
            await self._came.wait()

    def _is_readable_to_the_end(self) -> bool:
        """What had wholly come before the link was lost is still given out; a reset throws it away."""
        return self._inbox.is_finished and isinstance(self._failure, LinkLost)

    def _retire_when_done(self) -> None:
        if self._sends_no_more and self._gets_no_more:
            self._carrier.retire(self.stream_id)

    async def _send_long(self, length: int, views: list[memoryview]) -> None:
        is_whole = False
        try:
            self._write(_LENGTH.pack(length), flush=False)
            for view in views:
                for start in range(0, len(view), _SLICE_BYTES):
                    await self._drain()
                    self._write(view[start : start + _SLICE_BYTES], flush=True)
            is_whole = True
        finally:
            if not is_whole:
                self.reset()

    async def _drain(self) -> None:
        await self.until_unacknowledged(SEND_BUFFER_BYTES)

    def _write(self, data: bytes | memoryview, *, flush: bool) -> None:
        if self._failure is not None:
            raise self._failure
        if self._sends_no_more:
            raise LinkLost(f"this stream to {self.peer} was finished here: nothing more can be sent on it")
        self._carrier.write(self.stream_id, data, is_last=False, flush=flush)
