"""Links on loopback follow the membership: who is removed is unlinked at once, and gets no link again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kafila_sidecar.errors import KafilaError, Unavailable
from kafila_sidecar.net.candidates import Candidate
from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.driving.links import Links, StandingLinks
from tests.sidecar.session.village import Village

DEADLINE_S = 10.0


async def ignore(_: Stream) -> None: ...


class LinkedMember:
    """A member's network, and the links that it wants."""

    def __init__(self, replica: Replica, tasks: asyncio.TaskGroup) -> None:
        self.replica = replica
        self.endpoint = Endpoint.open(host="127.0.0.1")
        self.changes: list[tuple[str, bool]] = []
        self.standing = StandingLinks()
        self.links = Links(network=self, standing=self.standing, told=self._told, tasks=tasks)

    def start(self, changed: Callable[[], None]) -> None: ...

    def stop(self) -> None: ...

    def candidates(self) -> Sequence[Candidate]:
        return self.endpoint.candidates()

    def announced(self, peer: str, candidates: Sequence[Candidate]) -> None: ...
    def moved(self, peers: Iterable[str]) -> None: ...

    async def entry(self) -> dict[str, Any]:
        return {}

    async def dial(self, peer: str, candidates: Sequence[Candidate]) -> Link:
        member = self.replica.log.now.members[peer]
        return await self.connect(self.replica.keys.pair(member).link, member.fingerprint, peer, candidates)

    async def connect(
        self, key: bytes, fingerprint: bytes, peer: str, candidates: Sequence[Candidate], deadline_s: float = DEADLINE_S
    ) -> Link:
        return await self.endpoint.connect(
            session=self.replica.log.session,
            key=key,
            me=self.replica.identity,
            peer_name=peer,
            peer_fingerprint=fingerprint,
            candidates=candidates,
            deadline_s=deadline_s,
            on_stream=ignore,
        )

    async def reached(self, *peers: str) -> None:
        """Returns when exactly these links are up."""
        for _ in range(int(DEADLINE_S * 100)):
            if set(self.standing.up) == set(peers):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{self.replica.self_name} has links to {sorted(self.standing.up)}")

    def _told(self, peer: str, link: Link | None, error: KafilaError | None) -> None:
        self.changes.append((peer, link is not None))


@asynccontextmanager
async def linked_members(village: Village) -> AsyncIterator[dict[str, LinkedMember]]:
    async with asyncio.TaskGroup() as tasks:
        all_of_them = {name: LinkedMember(person.replica, tasks) for name, person in village.people.items()}
        for follower in all_of_them.values():
            for name, other in all_of_them.items():
                follower.links.learn(name, other.candidates())
            follower.links.want(frozenset(all_of_them) - {follower.replica.self_name}, epoch=1)
        try:
            yield all_of_them
        finally:
            for follower in all_of_them.values():
                await follower.links.close()
                await follower.endpoint.close()


async def test_link_when_its_member_is_kicked_then_closed_and_refused_while_others_stand() -> None:
    village = Village("anna", "eve")
    async with linked_members(village) as world:
        host, anna, eve = world.values()
        for follower in world.values():
            await follower.reached(*(name for name in world if name != follower.replica.self_name))
        before = anna.standing.to("host")
        pairs = {name: (member, eve.replica.keys.pair(member)) for name, member in eve.replica.log.now.members.items()}
        village.do("host", village["host"].upkeep.remove("eve", "removed"))
        for follower in (host, anna):
            follower.links.forget([member.name for member in follower.replica.members])
        await host.reached("anna")
        await anna.reached("host")
        assert anna.standing.to("host") is before
        eve.links.want(frozenset(), epoch=2)
        for name in ("host", "anna"):
            member, keys = pairs[name]
            strangers = world[name].endpoint.strangers
            with pytest.raises(KafilaError):
                await eve.connect(keys.link, member.fingerprint, name, world[name].candidates(), deadline_s=0.5)
            assert world[name].endpoint.strangers > strangers
        assert set(host.standing.up) == {"anna"}


async def test_link_when_a_member_plays_another_with_all_keys_it_has_then_none_comes_up() -> None:
    """Eve is a member still, and knows the session's key and those of her own pairs."""
    village = Village("anna", "eve")
    async with linked_members(village) as world:
        host, anna, eve = world.values()
        await host.reached("anna", "eve")
        await anna.reached("host", "eve")
        members = eve.replica.log.now.members
        known = [eve.replica.keys.key, *(eve.replica.keys.pair(members[name]).link for name in ("host", "anna"))]
        shared = host.replica.keys.pair(members["anna"]).link
        assert shared == anna.replica.keys.pair(members["host"]).link
        assert shared not in known
        before = anna.standing.to("host")
        eve.replica.identity.fingerprint = host.replica.identity.fingerprint  # she says that she is the host
        for key in known:
            with pytest.raises(KafilaError):
                await eve.connect(key, members["anna"].fingerprint, "anna", anna.candidates(), deadline_s=0.3)
        assert anna.standing.to("host") is before


async def test_link_when_the_plan_has_another_round_trip_then_it_is_told_again_once_the_session_is_ready() -> None:
    village = Village("anna", "eve")
    async with linked_members(village) as world:
        host = world["host"]
        await host.reached("anna", "eve")
        now_s = host.standing.to("eve").rtt_s
        async with asyncio.timeout(DEADLINE_S):
            while len(host.changes) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        host.changes.clear()
        host.links.tell_settled({"anna": now_s + 0.1, "eve": now_s, "nobody": 1.0})
        assert host.changes == [("anna", True)]
        host.links.want(frozenset({"eve"}), epoch=3)
        host.changes.clear()
        host.links.tell_settled({"anna": now_s + 0.1})
        assert host.changes == []


async def test_links_when_a_peer_is_forgotten_then_its_candidates_are_too() -> None:
    village = Village("anna")
    async with linked_members(village) as world:
        host = world["host"]
        await host.reached("anna")
        host.links.forget(["host"])
        await host.reached()
        assert host.links._candidates.keys() <= {"host"}
        assert host.links._keepers == {}


async def test_link_when_only_weights_are_drawn_over_it_then_it_stands_and_nobody_is_told() -> None:
    village = Village("anna")
    async with linked_members(village) as world:
        host, anna = world.values()
        await host.reached("anna")
        await anna.reached("host")
        for member, peer in ((host, "anna"), (anna, "host")):
            member.links.also(peer, frozenset({peer}))
        before = host.standing.to("anna")
        for member in (host, anna):
            member.changes.clear()
            member.links.want(frozenset(), epoch=4)
        assert host.standing.to("anna") is before
        assert (host.changes, anna.changes) == ([("anna", False)], [("host", False)])
        host.links.want(frozenset({"anna"}), epoch=5)
        assert host.changes[-1] == ("anna", True)
        host.links.want(frozenset(), epoch=6)
        for member, peer in ((host, "anna"), (anna, "host")):
            member.links.also(peer, frozenset())
        await host.reached()
        await anna.reached()


async def test_link_when_one_for_weights_cant_be_made_then_it_is_nobodys_fault_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafila_sidecar.session.driving.links.PAUSE_S", 0.01)
    tried = 0
    told: list[object] = []

    class Unreachable(LinkedMember):
        async def dial(self, peer: str, candidates: Sequence[Candidate]) -> Link:
            nonlocal tried
            tried += 1
            raise Unavailable(f"{peer} can't be reached")

    village = Village("anna")
    async with asyncio.TaskGroup() as tasks:
        host = Unreachable(village["host"].replica, tasks)
        host._told = lambda *change: told.append(change)  # type: ignore[method-assign]
        host.links.learn("anna", host.candidates())
        host.links.also("host", frozenset({"anna"}))
        async with asyncio.timeout(5):
            while tried < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        with pytest.raises(Unavailable, match="no link to anna within"):
            await host.standing.until_up("anna", 0.01)
        await host.links.close()
        await host.endpoint.close()
    assert not told
