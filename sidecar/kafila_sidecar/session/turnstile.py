"""How often whoever comes back enters rooms, whatever it finds there and whatever others say. No I/O, no clock.

A rendezvous counts the joins of an address (`joins_per_address_and_minute`), behind which a whole household may come
back at once.
"""

from dataclasses import dataclass

from kafila_sidecar.session.rendezvous.address import RendezvousAddress

AT_ONCE, EVERY_S = 4, 10.0  # rooms that are kept, at each rendezvous; and as often those that others name, wherever


@dataclass(slots=True)
class Allowance:
    """So many at once, and one more every so often."""

    paid_until: float = 0.0

    def opens_at(self) -> float:
        """When one more may be had, or might have been before."""
        return self.paid_until - (AT_ONCE - 1) * EVERY_S

    def take(self, now: float) -> bool:
        """Whether one may be had now, which is counted then."""
        if self.opens_at() > now:
            return False
        self.paid_until = max(self.paid_until, now) + EVERY_S
        return True


class Turnstile:
    """One session's, for as long as this machine is in it or comes back. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self.named = Allowance()  # by others: one that lies names no end of rooms at no end of rendezvous
        self._kept: dict[RendezvousAddress, Allowance] = {}

    def kept(self, rendezvous: RendezvousAddress, now: float) -> Allowance:
        """For rooms there that are kept."""
        if rendezvous not in self._kept:
            self._kept = {one: allowance for one, allowance in self._kept.items() if allowance.paid_until > now}
            self._kept[rendezvous] = Allowance()
        return self._kept[rendezvous]
