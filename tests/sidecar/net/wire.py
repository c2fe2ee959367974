"""A simulated network with a hand-moved clock: delay, loss, reorder, address translation, a limit on size."""

import heapq
import itertools
import random
from collections.abc import Callable

from kafila_sidecar.net.candidates import Address

Deliver = Callable[[bytes, Address], None]


class Wire:
    """Carries datagrams between addresses; `now` moves only in `run`."""

    def __init__(self, *, delay_s: float = 0.01, jitter_s: float = 0.0, loss: float = 0.0, seed: int = 1) -> None:
        self.now = 100.0
        self.largest_bytes = 65_507
        self.sent = 0
        self.cut: set[tuple[Address, Address]] = set()  # (from, to) pairs that carry nothing
        self._delay_s, self._jitter_s, self._loss = delay_s, jitter_s, loss
        self._chance = random.Random(seed)
        self._at: dict[Address, Deliver] = {}
        self._rewrites: dict[Address, Address] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def attach(self, address: Address, deliver: Deliver) -> None:
        self._at[address] = deliver

    def record(self, address: Address) -> list[bytes]:
        """A list that from now on gets a copy of whatever arrives there."""
        recorded: list[bytes] = []
        before = self._at[address]

        def deliver(data: bytes, source: Address) -> None:
            recorded.append(data)
            before(data, source)

        self._at[address] = deliver
        return recorded

    def translate(self, inside: Address, outside: Address) -> None:
        """From now on what `inside` sends comes from `outside`, and what is sent there reaches it: a NAT's mapping."""
        self._rewrites[inside] = outside
        self._at[outside] = lambda data, source: self._at[inside](data, source)

    def send(self, data: bytes, source: Address, target: Address) -> None:
        self.sent += 1
        seen_source = self._rewrites.get(source, source)
        if (seen_source, target) in self.cut or len(data) > self.largest_bytes or self._chance.random() < self._loss:
            return
        delay_s = self._delay_s + self._chance.random() * self._jitter_s
        self.at(self.now + delay_s, lambda: self._arrive(data, seen_source, target))

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._order), action))

    def run(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> bool:
        """Moves the clock; true as soon as `until` holds, which is asked after each event."""
        end = self.now + seconds
        while not until() and self._heap and self._heap[0][0] <= end:
            when, _, action = heapq.heappop(self._heap)
            self.now = max(self.now, when)
            action()
        if until():
            return True
        self.now = end
        return False

    def _arrive(self, data: bytes, source: Address, target: Address) -> None:
        if deliver := self._at.get(target):
            deliver(data, source)


class Clocked:
    """Drives a core's timer on the wire: `next_timer` tells when, `fire` does it."""

    def __init__(self, wire: Wire, next_timer: Callable[[], float | None], fire: Callable[[], None]) -> None:
        self._wire, self._next_timer, self._fire = wire, next_timer, fire
        self._armed: float | None = None

    def arm(self) -> None:
        at = self._next_timer()
        if at is None or (self._armed is not None and self._armed <= at):
            return
        # A real clock moves between two calls; without that, a timer that stays due would fire for ever.
        at = max(at, self._wire.now + 1e-6)
        self._armed = at
        self._wire.at(at, lambda: self._expired(at))

    def _expired(self, at: float) -> None:
        if self._armed != at:
            return
        self._armed = None
        self._fire()
        self.arm()
