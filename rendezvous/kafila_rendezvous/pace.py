"""How fast each address may ask, in a table that strangers can't make grow.

Addresses are hashed to a fixed number of buckets with a secret, so that forged addresses fill nothing, and nobody can
choose whom to share a bucket with.
"""

import hashlib
from array import array

from kafila_rendezvous.address import SHARES, networks

SLOTS = 1 << 16


class Pace:
    """`burst` requests at once, then `per_s`; a bucket is the time at which it will be empty of debts (GCRA)."""

    def __init__(self, *, per_s: float, burst: int, salt: bytes) -> None:
        self._step_s = 1 / per_s
        self._ahead_s = (burst - 1) / per_s
        self._salt = salt
        self._paid_at = array("d", bytes(8 * SLOTS))

    def allows(self, owner: str, now: float) -> bool:
        """Counts one request of an address, as `limited` names it; False when it is one too many."""
        slots = [self._slot(network) for network in networks(owner)]
        if any(self._paid_at[slot] - now > self._ahead_s for slot in slots):
            return False
        for slot, share in zip(slots, SHARES, strict=False):
            self._paid_at[slot] = max(self._paid_at[slot], now) + self._step_s / share
        return True

    def _slot(self, network: str) -> int:
        digest = hashlib.blake2b(network.encode(), key=self._salt, digest_size=4).digest()
        return int.from_bytes(digest, "big") % SLOTS
