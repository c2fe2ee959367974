"""Who reaches whom, which way, how fast: pairs of machines directly, each machine the rendezvous, pairs over its relay.

UDP between two machines and TCP to the rendezvous fail apart from each other, and each direction of a pair too. Who
moves to another network has another address there: what stood is dead, and a pair finds itself directly again if one of
the two knows where the other is now.
"""

import random
from collections.abc import Callable, Iterable

from kafila_sidecar.net.candidates import Address

RELAY_EXTRA_S = 0.02


def address_of(number: int, network: int) -> Address:
    """Where a machine of this number can be reached in the network that it is in after so many moves."""
    return f"192.0.{2 + network}.{number + 1}", 4711


def place_of(address: str) -> tuple[int, int]:
    """The number and the network in such an address."""
    _, _, network, number = map(int, address.split("."))
    return number - 1, network - 2


class SimInternet:
    """`changed` listeners hear of every change, at once."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.rendezvous_is_up = True
        self._cut: dict[tuple[str, str], int] = {}  # (from, to): how many faults cut this direction
        self._no_udp: dict[str, int] = {}
        self._no_tcp: dict[str, int] = {}
        self._networks: dict[str, int] = {}  # how often each machine has moved
        self._known: dict[tuple[str, str], int] = {}  # (who knows, whose): of how many moves
        self._delays: dict[frozenset[str], float] = {}
        self._listeners: list[Callable[[], None]] = []

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    # ---- What holds now

    def is_direct(self, one: str, other: str) -> bool:
        """Whether datagrams of `one` come to `other` without the relay, where they find one another."""
        return self.reaches(one, other) and self.are_found(one, other)

    def reaches(self, one: str, other: str) -> bool:
        """Whether a datagram of `one` to where `other` is comes there."""
        return not (self._cut.get((one, other)) or self._no_udp.get(one) or self._no_udp.get(other))

    def network_of(self, machine: str) -> int:
        """How often it has moved."""
        return self._networks.get(machine, 0)

    def are_found(self, one: str, other: str) -> bool:
        """Whether one of them knows where the other is: who is called sees from where."""
        return self._knows(one, other) or self._knows(other, one)

    def _knows(self, one: str, other: str) -> bool:
        return self._known.get((one, other), 0) == self.network_of(other)

    def reaches_rendezvous(self, machine: str) -> bool:
        return self.rendezvous_is_up and not self._no_tcp.get(machine)

    def is_relayed(self, one: str, other: str) -> bool:
        return self.reaches_rendezvous(one) and self.reaches_rendezvous(other)

    def is_joined(self, one: str, other: str) -> bool:
        """Whether the two can exchange frames by any path."""
        return self.is_relayed(one, other) or (self.is_direct(one, other) and self.is_direct(other, one))

    def delay_s(self, one: str, other: str, *, relayed: bool = False) -> float:
        """One way, for one datagram."""
        pair = frozenset((one, other))
        if pair not in self._delays:
            self._delays[pair] = self.chance.choice((0.002, 0.01, 0.02, 0.04))
        return self._delays[pair] * (1 + 0.2 * self.chance.random()) + (RELAY_EXTRA_S if relayed else 0.0)

    # ---- What changes

    def cut(self, pairs: Iterable[tuple[str, str]], *, by: int = 1) -> None:
        """These directions carry nothing, or (by=-1) again."""
        for pair in pairs:
            self._cut[pair] = self._cut.get(pair, 0) + by
        self._tell()

    def block_udp(self, machine: str, *, by: int = 1) -> None:
        self._no_udp[machine] = self._no_udp.get(machine, 0) + by
        self._tell()

    def block_tcp(self, machine: str, *, by: int = 1) -> None:
        self._no_tcp[machine] = self._no_tcp.get(machine, 0) + by
        self._tell()

    def move(self, machine: str) -> None:
        """It is in another network now."""
        self._networks[machine] = self.network_of(machine) + 1
        self._tell()

    def learn(self, one: str, other: str, network: int) -> None:
        """One is told where the other is, or was."""
        if self._known.get((one, other), 0) != network:
            self._known[one, other] = network
            self._tell()

    def raise_rendezvous(self, up: bool) -> None:
        self.rendezvous_is_up = up
        self._tell()

    def _tell(self) -> None:
        for changed in self._listeners:
            changed()
