"""When a link acknowledges what came. Without I/O.

aioquic does so a millisecond after the first packet, in a datagram of its own: for each frame of a ring, which costs
both ends as much as the frame. Here it may wait, as far as RFC 9000 section 13.2 has it: a few packets in order share
one, and one that waits goes along with what is sent. A packet that is missing, or was, is told of at once.
"""

from aioquic.quic.congestion.base import K_GRANULARITY

DELAY_S = 0.02  # less than the 25 ms that aioquic tells its peer, which waits so much longer before it sends again
MOST_PACKETS = 8  # a frame of 4,096 elements has six where datagrams are an Ethernet's


class AckPace:
    """Of one connection whose handshake is over."""

    def __init__(self) -> None:
        self._waiting = 0  # packets that are to be acknowledged
        self._is_hurried = False

    def came(self) -> None:
        """A packet that wants to be acknowledged."""
        self._waiting += 1

    def told(self) -> None:
        """All that came was acknowledged."""
        self._waiting, self._is_hurried = 0, False

    def due(self, at: float, now: float, *, is_in_order: bool) -> float:
        """When to do so, where that was to be `at` until another datagram came."""
        self._is_hurried = self._is_hurried or not is_in_order or self._waiting >= MOST_PACKETS
        return min(at, now + K_GRANULARITY) if self._is_hurried else at
