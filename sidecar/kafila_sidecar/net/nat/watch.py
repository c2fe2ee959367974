"""Noticing that this machine is on another network, from snapshots of its interfaces. No I/O, no clock."""

from collections.abc import Iterable

from kafila_sidecar.net.candidates import Interface, host_candidates

LOOK_EVERY_S = 1.0
SETTLED_LOOKS = 2  # equal in a row: an interface that comes up gets its addresses one after the other


class NetworkWatch:
    """Fed a snapshot every `LOOK_EVERY_S`; only addresses that make candidates count."""

    def __init__(self, interfaces: Iterable[Interface]) -> None:
        self._known = self._seen = _useful(interfaces)
        self._looks = SETTLED_LOOKS

    def look(self, interfaces: Iterable[Interface]) -> bool:
        """True once after each change, when the addresses have settled."""
        now = _useful(interfaces)
        self._looks = self._looks + 1 if now == self._seen else 1
        self._seen = now
        if self._looks < SETTLED_LOOKS or now == self._known:
            return False
        self._known = now
        return True


def _useful(interfaces: Iterable[Interface]) -> frozenset[str]:
    return frozenset(candidate.address for candidate in host_candidates(1, interfaces, ipv6=True))
