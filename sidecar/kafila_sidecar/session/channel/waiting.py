"""Messages that can't be read yet, kept for a while, bounded in number and bytes."""

from collections import deque

MOST_MESSAGES = 64
MOST_BYTES = 1024 * 1024  # so that one large message fits, and a flood does not


class Waiting:
    """The latest ones; the oldest go first."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def put(self, message: bytes) -> None:
        """Keeps a message unless it is kept already."""
        if message in self._messages:
            return
        self._messages.append(message)
        self._held_bytes += len(message)
        while len(self._messages) > MOST_MESSAGES or self._held_bytes > MOST_BYTES:
            self._held_bytes -= len(self._messages.popleft())

    def take(self) -> list[bytes]:
        """All of them, the oldest first; none is kept any more."""
        messages = list(self._messages)
        self._messages.clear()
        self._held_bytes = 0
        return messages
