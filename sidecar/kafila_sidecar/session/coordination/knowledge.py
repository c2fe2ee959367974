"""What one member knows of a session: who measured what, which links stand, who is set aside and why, who has loaded,
until when no better plan is taken.

Every member keeps it of what it hears, so that a successor begins with all that was decided and nobody has to tell it
again. No I/O, no clock.
"""

from collections.abc import Collection, MutableMapping, Sequence
from typing import Any

from kafila_sidecar.session.coordination.effects import Json
from kafila_sidecar.session.coordination.mesh import Mesh
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.coordination.rest import PlanRest


class Knowledge:
    """One member's. On the host the coordinator writes into it, elsewhere what the others say does."""

    def __init__(self) -> None:
        self.capabilities: dict[str, Json] = {}  # the latest of each member
        self.mesh = Mesh()
        self.rest = PlanRest()
        self.aside: dict[str, str] = {}  # who failed at something that the others waited for, and at what
        self.objective = ""  # which the latest plan is made for; the host may choose another than the terms'
        self.has_begun = False  # somebody said start: whoever is missing is not waited for any more
        self._loaded: dict[str, int] = {}  # the epoch whose stage each member holds, by its own word

    def keep(self, members: Collection[str]) -> None:
        """The membership log's members now."""
        kept = set(members)
        by_member: tuple[MutableMapping[str, Any], ...] = (self.capabilities, self.aside, self._loaded)
        for told in by_member:
            for gone in told.keys() - kept:
                del told[gone]
        self.mesh.keep(members)

    def measured(self, member: str, entry: Json) -> bool:
        """A member's entry for the planner came; true for its first."""
        is_first = member not in self.capabilities
        self.capabilities[member] = entry
        return is_first

    def problem(self, terms: PlanningTerms, names: Sequence[str], *, host: str) -> Json:
        """The planner's input with these members, all of whom were measured; the same bytes whoever builds it. The host
        is the anchor, if it is among them."""
        return {
            **terms.fields(names),
            "anchor": host if host in names else names[0],
            "members": [{**self.capabilities[name], "name": name} for name in names],
            "edges": self.mesh.entries(names),
        }

    def planned(self) -> None:
        """There is a new plan: the host says anew who has no part in it."""
        self.aside.clear()

    def loaded(self, member: str, epoch: int) -> None:
        """A member holds its stage of this epoch."""
        self._loaded[member] = epoch

    def who_loaded(self, epoch: int) -> Collection[str]:
        """Who holds its stage of this epoch."""
        return frozenset(member for member, held in self._loaded.items() if held == epoch)
