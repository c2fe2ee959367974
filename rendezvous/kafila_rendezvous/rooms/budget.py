"""What may wait in all mailboxes together: by address and by room first, then in all, with a reserve for small mail."""

from collections import Counter
from dataclasses import dataclass

from kafila_rendezvous.config import RendezvousLimits
from kafila_rendezvous.holdings import Holdings
from kafila_rendezvous.rooms.events import EVENT_BYTES, Mail

_RESERVED = 8  # one part in so many of a budget is for small mail of those who hold little
SMALL_BODY_BYTES = 4 * 1024
_SMALL_HOLDING = 64  # one part in so many of an address' limit: how much it may hold and still use the reserve


@dataclass(slots=True, eq=False)
class PostedMail:
    """Mail on its way to one mailbox or several. Its body is in memory once, so it counts once."""

    mail: Mail
    room: int  # its serial
    owner: str  # the address that posted it, as the limits count it
    copies: int = 0  # that wait


class MailBudget:
    """All that mailboxes of one server hold. Nothing leaves the account before it was sent."""

    def __init__(self, limits: RendezvousLimits) -> None:
        self.held = 0
        self._limits = limits
        self._by_owner = Holdings(limits.queued_bytes_per_address)
        self._by_room: Counter[int] = Counter()

    def has_room(self, letter: PostedMail) -> bool:
        """Whether one more copy of it may wait."""
        cost, limits = _cost(letter), self._limits
        is_modest = self._by_owner.of(letter.owner) + cost <= limits.queued_bytes_per_address // _SMALL_HOLDING
        may_use_reserve = len(letter.mail.body) <= SMALL_BODY_BYTES and is_modest
        return (
            self._by_owner.has_room(letter.owner, cost)
            and self._by_room[letter.room] + cost <= _most(limits.queued_bytes_per_room, may_use_reserve)
            and self.held + cost <= _most(limits.queued_bytes_in_all, may_use_reserve)
        )

    def has_room_for_news(self, reader: str) -> bool:
        """News counts for who does not read it, and needs no reserve: a reader without it starts anew."""
        return (
            self._by_owner.has_room(reader, EVENT_BYTES) and self.held + EVENT_BYTES <= self._limits.queued_bytes_in_all
        )

    def add(self, letter: PostedMail) -> None:
        cost = _cost(letter)
        letter.copies += 1
        self._by_room[letter.room] += cost
        self._count(letter.owner, cost)

    def remove(self, letter: PostedMail) -> None:
        letter.copies -= 1
        cost = _cost(letter)
        self._by_room[letter.room] -= cost
        if not self._by_room[letter.room]:
            del self._by_room[letter.room]
        self._count(letter.owner, -cost)

    def add_news(self, reader: str) -> None:
        self._count(reader, EVENT_BYTES)

    def remove_news(self, reader: str) -> None:
        self._count(reader, -EVENT_BYTES)

    def _count(self, owner: str, amount: int) -> None:
        self.held += amount
        if amount > 0:
            self._by_owner.add(owner, amount)
        else:
            self._by_owner.remove(owner, -amount)


def _cost(letter: PostedMail) -> int:
    """Bytes that one more copy takes, or that the last one gives back."""
    return EVENT_BYTES + (0 if letter.copies else len(letter.mail.body))


def _most(limit: int, may_use_reserve: bool) -> int:
    return limit if may_use_reserve else limit - limit // _RESERVED
