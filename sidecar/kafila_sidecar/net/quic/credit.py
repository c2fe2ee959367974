"""Receive credit that follows consumption.

aioquic doubles its flow control windows as bytes arrive, so a reader that stops reading holds ever more memory. Here a
stream may be at most one window ahead of its reader, and a link at most one (larger) window ahead of all its readers
together. RFC 9000 section 4.1.
"""

STREAM_WINDOW_BYTES = 4 << 20
LINK_WINDOW_BYTES = 16 << 20
UPDATE_BYTES = STREAM_WINDOW_BYTES // 2  # a new limit is told when it is this much above the last one


class Credit:
    """How far readers have read on each stream of one link; bytes and QUIC stream ids."""

    def __init__(self) -> None:
        self._consumed: dict[int, int] = {}

    def consume(self, stream_id: int, total: int) -> bool:
        """The reader of a stream has taken `total` bytes since its start (0 announces a reader).

        True when it is time to tell the peer.
        """
        before = self._consumed.get(stream_id, 0)
        self._consumed[stream_id] = total
        return total // UPDATE_BYTES != before // UPDATE_BYTES

    def drop(self, stream_id: int) -> None:
        """Nobody reads this stream any more: whatever still comes counts as read."""
        self._consumed.pop(stream_id, None)

    def stream_limit(self, stream_id: int) -> int:
        """The offset up to which the peer may send on a stream that is being read."""
        return self._consumed.get(stream_id, 0) + STREAM_WINDOW_BYTES

    def link_limit(self, received: int, highest_offsets: dict[int, int]) -> int:
        """The peer's limit for all streams; `received` bytes so far, `highest_offsets` of the streams that live."""
        unread = sum(offset - self._consumed.get(i, offset) for i, offset in highest_offsets.items())
        return received - unread + LINK_WINDOW_BYTES
