"""What a driver says and hears of the weights that members hold; `sharing` makes use of it."""

from collections.abc import Collection, Mapping
from typing import Protocol

from kafila_proto import ring_pb2
from kafila_sidecar.weights.format.ranges import Ranges


class Shares(Protocol):
    """One session's weights, here and at the others; `sharing.session.SessionWeights`."""

    def holds(self) -> ring_pb2.Holds | None:
        """What is here, for the others; None while that is not known."""

    def learn(self, member: str, held: Mapping[int, Ranges]) -> None:
        """What a member holds now, by the place of the file among the sorted names."""

    def members(self, names: Collection[str]) -> None:
        """Who belongs to the session now."""
