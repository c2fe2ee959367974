"""From sets of members to rings worth dividing: what the search asks of equal and of unequal blocks alike.

Where blocks are equal, the order of a ring matters to its network alone, so a set has one ring. Where they are not,
it matters to the division too, and a set has many.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from kafila_planner.ring.tour import Ring
from kafila_planner.search.pool import FoundLayout, Pool, SearchBudget


class Rings(ABC):
    """The states are how many a search may count: of table entries, bounds and shares, or of cuts tried."""

    exact_states: ClassVar[int]
    """About a second on one slow core."""
    local_states: ClassVar[int]
    """For the local search's divisions."""
    climb_states: ClassVar[int]
    """For the climbs together."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    @abstractmethod
    def exact(self, budget: SearchBudget, known_s: float) -> Iterable[FoundLayout]:
        """The best of every subset, order, head and batch size among them, unless the budget is spent before."""

    @abstractmethod
    def guesses(self) -> list[Pool]:
        """The pool with the bounds that a walk over sets goes by, for one walk or several."""

    @abstractmethod
    def of_set(self, ring: Ring) -> Iterator[Ring]:
        """The rings in which a set is divided; `ring` is an estimated one."""

    @abstractmethod
    def exchanged(self, ring: Ring) -> Iterator[Ring]:
        """Rings of the same members in which two have changed places."""

    @abstractmethod
    def starts(self, known: Sequence[FoundLayout], budget: SearchBudget) -> Iterable[FoundLayout]:
        """Further layouts to climb from."""

    @abstractmethod
    def without(self, ring: Ring, place: int) -> Ring:
        """One member less."""

    @abstractmethod
    def with_member(self, ring: Ring, member: int) -> Iterator[Ring]:
        """One member more."""

    @abstractmethod
    def instead(self, ring: Ring, place: int, member: int) -> Ring:
        """Another member for the one at a place."""

    @abstractmethod
    def reordered(self, ring: Ring) -> Iterator[Ring]:
        """The same members in an order a little changed."""

    @abstractmethod
    def finished(self, ring: Ring) -> Iterator[Ring]:
        """What is tried of a set at the top of a climb."""

    @abstractmethod
    def preferred(self, best: Sequence[FoundLayout]) -> list[FoundLayout]:
        """Those of equally good layouts that are left to choose from."""

    @abstractmethod
    def everybody(self, near: Ring, budget: SearchBudget) -> list[FoundLayout]:
        """Layouts of the whole pool; `near` is a good ring of all but one."""


def exchanges(ring: Ring) -> Iterator[Ring]:
    """The orders in which two members have changed places."""
    for i in range(len(ring)):
        for j in range(i):
            other = list(ring)
            other[i], other[j] = other[j], other[i]
            yield tuple(other)
