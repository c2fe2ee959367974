"""What this member tells of itself for the planner: its measured costs once, its network and what it holds whenever
that changes."""

import json
from collections import deque

from kafila_proto import ring_pb2
from kafila_sidecar.session.coordination.effects import Json

MOST_REMEMBERED = 8


class Capabilities:
    """This member's entries for the planner, as it told them, the latest last.

    The earlier ones count too: a plan may rest on one that was told anew while the plan was on its way.
    """

    def __init__(self) -> None:
        self._told: deque[ring_pb2.Capability] = deque(maxlen=MOST_REMEMBERED)

    @property
    def latest(self) -> ring_pb2.Capability | None:
        """None before anything was measured."""
        return self._told[-1] if self._told else None

    @property
    def entries(self) -> list[Json]:
        return [json.loads(told.member_json) for told in self._told]

    def measured(self, entry: Json, device: str) -> None:
        """entry: the planner's "members" entry, with its name."""
        self._told.append(ring_pb2.Capability(member_json=json.dumps(entry), device=device))

    def moved(self, fields: Json) -> bool:
        """Takes other fields; false when nothing was measured yet, or nothing is new."""
        if self.latest is None or self.entries[-1] == (entry := {**self.entries[-1], **fields}):
            return False
        self.measured(entry, self.latest.device)
        return True
