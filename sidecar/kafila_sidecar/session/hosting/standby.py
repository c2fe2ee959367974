"""Who is a member and takes no part in the plan, and why; such a member is an entry point. Pure.

One member's failure is no reason to end the session for the others: whoever is too small for the plan, did not measure
itself, can't be linked or stopped loading is set aside, unless the session requires it.
"""

from collections.abc import Collection, Iterable, Mapping

from kafila_planner import Refusal
from kafila_sidecar.session.coordination.planning_terms import ALL


class Standby:
    """The host's list."""

    def __init__(self, require: Collection[str], stuck: dict[str, str]) -> None:
        """`stuck`: who failed before, and at what; it is kept up to date."""
        self._require = require
        self._stuck = stuck  # name -> why, until it measures anew or is no member
        self._small: dict[str, str] = {}  # for the plan that is being made
        self._refused: Refusal | None = None  # of the plan with everybody

    @property
    def names(self) -> Collection[str]:
        """Who is out of the next plan."""
        return self.why.keys()

    @property
    def why(self) -> Mapping[str, str]:
        """By name, for people."""
        return {**self._stuck, **self._small}

    @property
    def stuck(self) -> Collection[str]:
        """Who failed at something; nobody waits for a link of theirs either."""
        return self._stuck.keys()

    def begin(self) -> None:
        """A plan is made with everybody who is not stuck."""
        self._small, self._refused = {}, None

    def put(self, name: str, why: str) -> None:
        """A member failed at something that the others wait for."""
        self._stuck[name] = why

    def take_back(self, name: str) -> None:
        """It did what it had failed at."""
        self._stuck.pop(name, None)

    def required(self, names: Iterable[str]) -> str:
        """The first of these without whom the session must not go on; else empty."""
        return next((name for name in names if ALL in self._require or name in self._require), "")

    def leave_out(self, refusal: Refusal, planned: Collection[str]) -> bool:
        """Leaves out whom the planner finds too small. False when there is nobody to leave out."""
        name = refusal.undersized
        if name not in planned or len(planned) == 1 or self.required([name]):
            return False
        self._refused = self._refused or refusal
        self._small[name] = refusal.reason
        return True

    def give_up(self, refusal: Refusal) -> Refusal:
        """Leaving out members did not help: why the plan with everybody was refused."""
        first = self._refused or refusal
        self.begin()
        return first
