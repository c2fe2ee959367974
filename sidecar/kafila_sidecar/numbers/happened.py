"""Losses and plans of one session, seen from one look at it to the next. No I/O."""

from collections.abc import Collection

from kafila_sidecar.numbers.served import ServedNumbers


class Happened:
    """Counts what is other than at the look before."""

    def __init__(self, served: ServedNumbers) -> None:
        self._served = served
        self._gone: frozenset[str] = frozenset()
        self._epoch = 0
        self._was_lost = False  # somebody, since the latest plan

    def look(self, *, gone: Collection[str], epoch: int) -> None:
        """`gone`: members that are taken for lost now; `epoch`: of the plan that stands, 0 before the first."""
        fresh = frozenset(gone) - self._gone
        self._gone = frozenset(gone)
        self._served.losses.inc(len(fresh))
        self._was_lost = self._was_lost or bool(fresh)
        if epoch > self._epoch:
            self._served.plans.inc()
            self._served.repairs.inc(self._was_lost and self._epoch > 0)
            self._epoch, self._was_lost = epoch, False
