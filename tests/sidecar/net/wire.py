"""One wire between two protocol cores, with a hand-moved clock: delay, loss, reorder, new addresses, a largest size."""

import random
from collections.abc import Callable

from kafila_sidecar.net.candidates import Address
from tests.support.hand_clock import HandClock

Deliver = Callable[[bytes, Address], None]


class DatagramWire(HandClock):
    """Carries datagrams between addresses."""

    def __init__(self, *, delay_s: float = 0.01, jitter_s: float = 0.0, loss: float = 0.0, seed: int = 1) -> None:
        super().__init__()
        self.largest_bytes = 65_507
        self.sent = 0
        self.cut: set[tuple[Address, Address]] = set()  # (from, to) pairs that carry nothing
        self._delay_s, self._jitter_s, self._loss = delay_s, jitter_s, loss
        self._chance = random.Random(seed)
        self._at: dict[Address, Deliver] = {}
        self._rewrites: dict[Address, Address] = {}

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
        self.call_later(delay_s, self._arrive, data, seen_source, target)

    def _arrive(self, data: bytes, source: Address, target: Address) -> None:
        if deliver := self._at.get(target):
            deliver(data, source)
