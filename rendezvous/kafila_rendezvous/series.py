"""Which numbers a rendezvous gives to its rooms."""

from dataclasses import dataclass

EMBEDDED_STEP = 100  # rooms of an embedded rendezvous are as many numbers apart


@dataclass(frozen=True, slots=True)
class Series:
    """The numbers that a rendezvous gives out: `first`, and each `step` above it."""

    first: int = 1
    step: int = 1

    def has(self, number: int) -> bool:
        return number >= self.first and (number - self.first) % self.step == 0


EVERY = Series()


def embedded_series(fingerprint: str) -> Series:
    """Of an embedded rendezvous with this certificate: all its numbers end with the same two digits, never 00, and
    seldom with those of another one on the same network, so that the digits say which of them to ask."""
    return Series(1 + int(fingerprint, base=36) % (EMBEDDED_STEP - 1), EMBEDDED_STEP)
