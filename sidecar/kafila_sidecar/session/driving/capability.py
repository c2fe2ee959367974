"""What this member tells of itself for the planner: its measured costs, its network and what it holds whenever that
changes, and what its stage really takes, until it is measured anew.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import log
from typing import Any

from kafila_planner import member_from_json, run_s
from kafila_planner.correction import Slowness
from kafila_proto import ring_pb2
from kafila_sidecar.session.coordination.correction import AsPlanned, Served, slower_entry
from kafila_sidecar.session.coordination.effects import Json, Proposal

MOST_REMEMBERED = 8
WORTH_TELLING = 1.1  # times as long as told, or as short
MOST_SLOWNESS = 32.0  # times what was measured, or a part of it: whatever a head says that a stage took
AS_MEASURED = Slowness()


@dataclass(frozen=True, slots=True)
class _Entry:
    """`slowness`: how many times as long it takes as was measured."""

    told: ring_pb2.Capability
    measured: Json
    slowness: Slowness = AS_MEASURED

    @property
    def json(self) -> Json:
        read: Json = json.loads(self.told.member_json)
        return read


class Capabilities:
    """This member's entries for the planner, as it told them, the latest last.

    The earlier ones count too: a plan may rest on one that was told anew while the plan was on its way. slowed: hears
    how many times as long it takes as was measured, when that has changed.
    """

    def __init__(self, slowed: Callable[[Slowness], None] = lambda _: None, *, kafila: str = "") -> None:
        """`kafila`: the version of this machine's package, which is told with them."""
        self._slowed = slowed
        self._kafila = kafila
        self._told: deque[_Entry] = deque(maxlen=MOST_REMEMBERED)
        self._served = Served()

    @property
    def latest(self) -> ring_pb2.Capability | None:
        """None before anything was measured."""
        return self._told[-1].told if self._told else None

    @property
    def entries(self) -> list[Json]:
        return [entry.json for entry in self._told]

    def measured(self, entry: Json, device: str) -> None:
        """entry: the planner's "members" entry, with its name."""
        self._tell(entry, device, AS_MEASURED)

    def moved(self, fields: Json) -> bool:
        """Takes other fields; false when nothing was measured yet, or nothing is new."""
        if not self._told or self._told[-1].json == {**self._told[-1].json, **fields}:
            return False
        latest = self._told[-1]
        self._tell({**latest.measured, **fields}, latest.told.device, latest.slowness)
        return True

    def served(self, proposal: Proposal, trace: Mapping[str, Any]) -> bool:
        """Takes the head's record of a request; true when this member's stage takes another time than it told."""
        planned = self._as_planned(proposal)
        if planned is None:
            return False
        name = planned.measured["name"]
        if proposal.stage_of(name) is None:
            return False
        place = proposal.plan.order.index(name)
        took = self._served.add(trace, name, partial(run_s, proposal.problem, proposal.plan, place))
        return took is not None and self._takes(_times(planned.slowness, took))

    def _takes(self, slowness: Slowness) -> bool:
        latest = self._told[-1]
        told = latest.slowness
        if not (_differs(slowness.alone, told.alone) or _differs(slowness.shared, told.shared)):
            return False
        self._tell(latest.measured, latest.told.device, slowness)
        self._slowed(slowness)
        return True

    def _as_planned(self, proposal: Proposal) -> _Entry | None:
        """What of this the plan rests on."""
        members = {member.name: member for member in proposal.problem.members}
        mine = members.get(self._told[-1].measured["name"]) if self._told else None
        return next((one for one in reversed(self._told) if member_from_json(one.json) == mine), None)

    def _tell(self, measured: Json, device: str, slowness: Slowness) -> None:
        entry = measured if slowness == AS_MEASURED else slower_entry(measured, slowness)
        told = ring_pb2.Capability(member_json=json.dumps(entry), device=device, kafila=self._kafila)
        self._told.append(_Entry(told, measured, slowness))


def _times(before: Slowness, took: AsPlanned) -> Slowness:
    """`before`: what the plan reckoned with."""
    alone = before.alone if took.alone is None else _believed(before.alone * took.alone)
    if took.shared is None:  # where everything takes longer, they do as well
        return Slowness(alone, _believed(before.shared * alone / before.alone))
    return Slowness(alone, _believed(before.shared * took.shared))


def _believed(times: float) -> float:
    return min(max(times, 1 / MOST_SLOWNESS), MOST_SLOWNESS)


def _differs(times: float, told: float) -> bool:
    return abs(log(times / told)) >= log(WORTH_TELLING)
