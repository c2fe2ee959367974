"""Which request runs next. Pure: no clock, no task.

A bounded number of sequences run at once, a bounded queue waits behind them, first come, first served.
"""

from kafila_sidecar.errors import Exhausted

SHORTEST_CHUNK_TOKENS = 16
STEPS_A_CHUNK = 4.0  # while others decode, a chunk of a prompt takes as long as so many of their steps
MOST_WAITING = 512  # as many as Ollama's own OLLAMA_MAX_QUEUE allows by default


class Scheduler:
    """`most_running` requests run, up to `most_waiting` wait in order of arrival, those first that ran before and were
    interrupted. Requests are known by number."""

    def __init__(self, *, most_running: int, most_waiting: int = MOST_WAITING) -> None:
        self._most_running = most_running
        self._most_waiting = most_waiting
        self._running: set[int] = set()
        self._waiting: dict[int, bool] = {}  # in order of arrival; whether it has begun before

    def check_room(self) -> None:
        """Raises Exhausted when the queue is full, before any work on another request."""
        if len(self._waiting) >= self._most_waiting:
            raise Exhausted(f"{len(self._waiting)} requests are waiting already: try again later")

    def add(self, request: int, *, has_begun: bool = False) -> None:
        """Puts a request at the end of the queue, or of those in it that have begun before.

        Raises:
            Exhausted: the queue is full.
        """
        self.check_room()
        self._waiting[request] = has_begun

    def due(self) -> list[int]:
        """The requests whose turn has come, in order; they run from now on."""
        in_order = sorted(self._waiting, key=lambda request: not self._waiting[request])
        turns = in_order[: self._most_running - len(self._running)]
        for request in turns:
            del self._waiting[request]
            self._running.add(request)
        return turns

    def remove(self, request: int) -> None:
        """The request is over, or nobody wants it any more: it neither runs nor waits."""
        self._waiting.pop(request, None)
        self._running.discard(request)


class ChunkPace:
    """How long a prompt's chunks are: as long as they may be, unless others would wait for them. Reads no clock."""

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._token_s: float | None = None  # of the latest chunk
        self._step_s: float | None = None  # of the latest decode step

    def ran_chunk(self, tokens: int, seconds: float) -> None:
        if tokens >= min(SHORTEST_CHUNK_TOKENS, self._most_tokens):
            self._token_s = seconds / tokens

    def ran_step(self, seconds: float) -> None:
        self._step_s = seconds

    def tokens(self, *, among: int) -> int:
        """Of the next chunk, with so many requests that run."""
        if among < 2 or not self._token_s or not self._step_s:
            return self._most_tokens
        wanted = int(STEPS_A_CHUNK * self._step_s / self._token_s)
        return min(max(wanted, SHORTEST_CHUNK_TOKENS), self._most_tokens)
