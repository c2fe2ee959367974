"""A host that may have been replaced asks who is with it, once for each proof."""

from dataclasses import dataclass, field
from typing import Any, cast

from kafila_proto import ring_pb2
from kafila_sidecar.session.channel.events import Outvoted, WentAstray
from kafila_sidecar.session.channel.following import Following


@dataclass(frozen=True, slots=True)
class OtherMember:
    name: str


@dataclass(slots=True)
class Followed:
    """A replica and an upkeep whose others are all there; what was done is told."""

    others: tuple[OtherMember, ...] = (OtherMember("anna"), OtherMember("ben"), OtherMember("carl"))
    present: set[str] = field(default_factory=lambda: {"ben", "carl"})
    done: list[object] = field(default_factory=list)

    def call_the_roll(self) -> str:
        return "roll"

    def settle(self, events: list[WentAstray]) -> WentAstray:
        (event,) = events
        return event


def outvoted(entry: bytes) -> Outvoted:
    return Outvoted("anna", (ring_pb2.SignedEntry(entry=entry),))


async def test_host_when_most_are_with_it_then_it_asks_once_for_each_proof() -> None:
    world = Followed()
    following = Following(
        replica=cast(Any, world), upkeep=cast(Any, world), perform=world.done.append, give_way=world.done.append
    )
    first, other = outvoted(b"1"), outvoted(b"2")
    following.begin(first)
    following.begin(first)
    assert world.done == ["roll"]  # it is under way
    following.end()
    following._yield_or_stay(first)
    following.begin(first)
    assert world.done == ["roll", *[WentAstray("anna", first.proof)] * 2]
    assert not following.is_under_way
    following.begin(other)
    assert world.done[-1] == "roll"
    assert following.is_under_way
    following.end()
