"""Which request runs next. Pure: no clock, no task.

A bounded number of sequences run at once, a bounded queue waits behind them. Members take turns: next comes one of
whoever has the fewest running, and had its last turn longest ago; one member's are first come, first served.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kafila_sidecar.errors import Exhausted

SHORTEST_CHUNK_TOKENS = 16
RUNS_A_GAP = 4.0  # whoever decodes gets a token in so many runs' time at least: one is its own
STEPS_A_CHUNK = RUNS_A_GAP - 1  # so a chunk of a prompt, which takes turns with those runs, takes no longer than these
MOST_WAITING = 512  # as many as Ollama's own OLLAMA_MAX_QUEUE allows by default


@dataclass(frozen=True, slots=True)
class InQueue:
    """A request that waits. asker: the member whose it is. has_begun: it ran before, and was interrupted."""

    asker: str
    has_begun: bool


class Scheduler:
    """`most_running` requests run, up to `most_waiting` wait. Requests are known by number."""

    def __init__(self, *, most_running: int, most_waiting: int = MOST_WAITING) -> None:
        self._most_running = most_running
        self._most_waiting = most_waiting
        self._running: dict[int, str] = {}  # by whom
        self._waiting: dict[int, InQueue] = {}  # in order of arrival
        self._turns: dict[str, int] = {}  # the number of each member's last one, of all so far

    def check_room(self) -> None:
        """Raises Exhausted when the queue is full, before any work on another request."""
        if len(self._waiting) >= self._most_waiting:
            raise Exhausted(f"{len(self._waiting)} requests are waiting already: try again later")

    def add(self, request: int, *, asker: str = "", has_begun: bool = False) -> None:
        """Puts a request into the queue.

        Raises:
            Exhausted: the queue is full.
        """
        self.check_room()
        self._waiting[request] = InQueue(asker, has_begun)

    def due(self) -> list[int]:
        """The requests whose turn has come, in order; they run from now on."""
        turns = []
        while self._waiting and len(self._running) < self._most_running:
            request = min(self._waiting, key=self._rank)
            asker = self._running[request] = self._waiting.pop(request).asker
            self._turns[asker] = 1 + max(self._turns.values(), default=0)
            turns.append(request)
        return turns

    def remove(self, request: int) -> None:
        """The request is over, or nobody wants it any more: it neither runs nor waits."""
        self._waiting.pop(request, None)
        self._running.pop(request, None)

    def _rank(self, request: int) -> tuple[bool, int, int]:
        """Who was interrupted goes first, whosever it is."""
        one = self._waiting[request]
        running = list(self._running.values()).count(one.asker)
        return not one.has_begun, running, self._turns.get(one.asker, 0)


class ChunkPace:
    """How long a prompt's chunks are: as long as is best for it, unless others would wait for them. Reads no clock."""

    def __init__(self, most_tokens: int, best: Callable[[int], int], beside: int | None = None) -> None:
        """best: tokens of a chunk, of a prompt of so many. beside: of one that keeps no stage longer than
        `STEPS_A_CHUNK` of its steps, by the plan; None where that does not know."""
        self._most_tokens = most_tokens
        self._best = best
        self._beside = beside
        self._token_s: float | None = None  # of the latest chunk
        self._step_s: float | None = None  # of the latest decode step

    def ran_chunk(self, tokens: int, seconds: float) -> None:
        if tokens >= min(SHORTEST_CHUNK_TOKENS, self._most_tokens):
            self._token_s = seconds / tokens

    def ran_step(self, seconds: float) -> None:
        self._step_s = seconds

    def tokens(self, whole: int, *, among: int) -> int:
        """Of the next chunk of a prompt of so many, with so many requests that run."""
        best = min(self._best(whole), self._most_tokens)
        if among < 2:
            return best
        allowed = min(self._allowed(), default=best)
        return min(max(allowed, SHORTEST_CHUNK_TOKENS), best)

    def _allowed(self) -> Iterator[int]:
        """While others decode: on every stage by the plan, and here by what was run last."""
        if self._beside is not None:
            yield self._beside
        if self._token_s and self._step_s:
            yield int(STEPS_A_CHUNK * self._step_s / self._token_s)
