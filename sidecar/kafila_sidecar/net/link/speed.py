"""How quickly bytes come over a link: each end sends a burst that says nothing, and the other one times what comes.

It is as much as a connection sends at once, so that it comes as quickly as the slowest part of the path lets it. What
comes tells of one direction alone: acknowledgements would have to wait for the burst that goes the other way.
"""

from kafila_sidecar.net.link.stream import Stream

MESSAGES, MESSAGE_BYTES = 16, 4096
DEADLINE_S = 0.5  # a slow line has shown by then how slow it is
LEAST_S = 0.002  # a burst that comes sooner came in a few wake-ups of this process, and tells nothing

_MESSAGE = bytes(MESSAGE_BYTES)


class Burst:
    """One that is on its way to this end, or came. Reads no clock."""

    def __init__(self) -> None:
        self._messages = 0
        self._first_at = self._last_at = 0.0

    def came(self, now: float) -> bool:
        """One message of it more; whether that was the last."""
        self._first_at = self._first_at if self._messages else now
        self._last_at = now
        self._messages += 1
        return self._messages == MESSAGES

    @property
    def bytes_per_s(self) -> float:
        """As far as it came; 0 where that can't be told, or is too quick to be."""
        taken_s = self._last_at - self._first_at
        return (self._messages - 1) * MESSAGE_BYTES / taken_s if taken_s >= LEAST_S else 0.0


def send_burst(stream: Stream) -> None:
    """Raises LinkLost."""
    stream.send_at_once([[_MESSAGE]] * MESSAGES)
    stream.finish()
