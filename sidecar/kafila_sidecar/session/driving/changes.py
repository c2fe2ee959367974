"""What of a session people see, and what of it is other than it was. No I/O."""

from collections.abc import Mapping, Sequence
from enum import Flag, auto
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, Self

from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.coordination.leaving import Leaving
from kafila_sidecar.session.driving.cores import Cores
from kafila_sidecar.session.driving.jobs import StageDriver
from kafila_sidecar.session.driving.roster import Roster


class Change(Flag):
    """What is other than before; several may be at once."""

    STATE = auto()  # what the session does, whom it waits for, why it closed
    MEMBERS = auto()  # who belongs to it, who is there, who is the host
    PROGRESS = auto()  # what each member does, and offers
    PLAN = auto()
    LINKS = auto()
    SERVED = auto()  # the latest request, and what is advised by the served times
    JOINING = auto()  # the code, and whether newcomers get in
    LOAD = auto()  # requests under way, and what the stage holds


class Glance(NamedTuple):
    """All that a snapshot is made of, as values that cost little to take; one field for each `Change`, in that
    order."""

    state: Sequence[Any]
    members: Sequence[Any]
    progress: Sequence[Any]
    plan: int
    links: Mapping[Any, Any]
    served: Sequence[Any]
    joining: Sequence[Any]
    load: Sequence[int]

    @classmethod
    def at(
        cls, channel: Channel, cores: Cores, roster: Roster, stage: StageDriver, advice: str, leaving: Leaving
    ) -> Self:
        """The session as it is now."""
        follower, coordinator = cores.follower, cores.coordinator
        seen = roster.seen
        return cls(
            state=(
                *(follower.state, follower.fault, follower.shortage),
                coordinator.waiting_for() if coordinator else (),
                *(leaving.has_begun, leaving.kept_back, channel.replanning),
            ),
            members=(channel.host, [(name, follower.liveness.is_gone(name)) for name in seen]),
            progress=[(name, *view.shown) for name, view in seen.items()],
            plan=follower.proposal.epoch if follower.proposal else 0,
            links=dict(roster.edges),
            served=(id(roster.trace), advice),
            joining=(channel.joining, channel.code),
            load=(stage.active_sequences, stage.weight_bytes, id(roster.busy)),
        )

    def since(self, before: "Glance") -> Change:
        """What is other than it was; nothing is `Change(0)`."""
        if self == before:
            return Change(0)
        fields = zip(Change, self, before, strict=True)
        return reduce(or_, (change for change, now, then in fields if now != then), Change(0))
