"""Which request runs next. Pure: no clock, no task.

A bounded number of sequences run at once, a bounded queue waits behind them, first come, first served.
"""

from kafila_sidecar.errors import Exhausted

# Sequences that one run of a shard computes. What a member tells of its speed, and so what a plan reckons with, is for
# no more than that.
MOST_ROWS_A_RUN = 1
MOST_WAITING = 512  # as many as Ollama's own OLLAMA_MAX_QUEUE allows by default


class Scheduler:
    """`most_running` requests run, up to `most_waiting` wait in order of arrival. Requests are known by number."""

    def __init__(self, *, most_running: int, most_waiting: int = MOST_WAITING) -> None:
        self._most_running = most_running
        self._most_waiting = most_waiting
        self._running: set[int] = set()
        self._waiting: dict[int, None] = {}  # in order of arrival

    def check_room(self) -> None:
        """Raises Exhausted when the queue is full, before any work on another request."""
        if len(self._waiting) >= self._most_waiting:
            raise Exhausted(f"{len(self._waiting)} requests are waiting already: try again later")

    def add(self, request: int) -> None:
        """Puts a request at the end of the queue.

        Raises:
            Exhausted: the queue is full.
        """
        self.check_room()
        self._waiting[request] = None

    def due(self) -> list[int]:
        """The requests whose turn has come, in order; they run from now on."""
        turns = list(self._waiting)[: self._most_running - len(self._running)]
        for request in turns:
            del self._waiting[request]
            self._running.add(request)
        return turns

    def remove(self, request: int) -> None:
        """The request is over, or nobody wants it any more: it neither runs nor waits."""
        self._waiting.pop(request, None)
        self._running.discard(request)
