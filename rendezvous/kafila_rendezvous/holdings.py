"""How much of something each address holds, its wider networks counted with it."""

from collections import Counter

from kafila_rendezvous.address import SHARES, networks


class Holdings:
    """At most `limit` for an address, and `SHARES` times as much for the networks that it lies in."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many networks hold any."""
        return len(self._held)

    def has_room(self, owner: str, amount: int = 1) -> bool:
        """Whether `owner`, as `limited` names it, may hold that much more."""
        shared = zip(networks(owner), SHARES, strict=False)
        return all(self._held[network] + amount <= self.limit * share for network, share in shared)

    def add(self, owner: str, amount: int = 1) -> None:
        self._held.update(dict.fromkeys(networks(owner), amount))

    def remove(self, owner: str, amount: int = 1) -> None:
        """Keeps no zeros, so that the table is as long as what is held."""
        for network in networks(owner):
            self._held[network] -= amount
            if self._held[network] <= 0:
                del self._held[network]

    def of(self, owner: str) -> int:
        return self._held[owner]

    def is_newcomer(self, owner: str) -> bool:
        """Whether nobody in the widest of its networks holds any."""
        return not self._held[networks(owner)[-1]]
