"""Things that strangers may hold a number of: so many in all, so many for each address, some kept for newcomers."""

from kafila_rendezvous.errors import LimitReached
from kafila_rendezvous.holdings import Holdings

RESERVED = 8  # one part in so many is for networks that hold none


class Places:
    """`what` they are, in the plural, for the sentences."""

    def __init__(self, most: int, per_address: int, what: str) -> None:
        self.taken = 0
        self._most = most
        self._what = what
        self._held = Holdings(per_address)

    def check(self, owner: str) -> None:
        """Raises LimitReached when `owner` may take no further one."""
        newcomer = self._held.is_newcomer(owner)
        if self.taken >= (self._most if newcomer else self._most - self._most // RESERVED):
            raise LimitReached(f"all {self._most} {self._what} of this rendezvous are taken: use another one")
        if not self._held.has_room(owner):
            raise LimitReached(f"your address has {self._held.limit} {self._what} open: leave one first")

    def take(self, owner: str) -> None:
        self.taken += 1
        self._held.add(owner)

    def give_back(self, owner: str) -> None:
        self.taken -= 1
        self._held.remove(owner)
