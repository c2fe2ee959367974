"""The links that one session needs now: opened side by side, again when they break, closed when not needed."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from kafila_sidecar.errors import KafilaError, Unavailable
from kafila_sidecar.net.candidates import Candidate
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.session.coordination.edges import is_another_trip
from kafila_sidecar.session.coordination.effects import Json
from kafila_sidecar.session.judging.ends import OtherEnds

log = logging.getLogger(__name__)

OPEN_DEADLINE_S = 20.0
CANDIDATES_DEADLINE_S = 30.0
PAUSE_S = 2.0  # between two tries at a link that can't be made

Told = Callable[[str, Link | None, KafilaError | None], None]


class LinkMaker(Protocol):
    """Makes this session's links; `reaching.Reaching`."""

    def start(self, changed: Callable[[], None]) -> None: ...
    def stop(self) -> None: ...
    def candidates(self) -> Sequence[Candidate]: ...
    def announced(self, peer: str, candidates: Sequence[Candidate]) -> None: ...
    def moved(self, peers: Iterable[str]) -> None: ...
    async def entry(self) -> Json: ...
    async def dial(self, peer: str, candidates: Sequence[Candidate]) -> Link: ...


class StandingLinks:
    """One session's links that stand now, by peer name."""

    def __init__(self) -> None:
        self._up: dict[str, Link] = {}
        self._came_up = asyncio.Event()

    def to(self, peer: str) -> Link:
        """The link to a peer.

        Raises: Unavailable while it is down.
        """
        try:
            return self._up[peer]
        except KeyError:
            raise Unavailable(f"there is no link to {peer} right now: try again in a moment") from None

    @property
    def up(self) -> Mapping[str, Link]:
        return self._up

    async def until_up(self, peer: str, deadline_s: float) -> Link:
        """The link to a peer, once it stands. Raises Unavailable if that takes too long."""
        try:
            async with asyncio.timeout(deadline_s):
                while peer not in self._up:
                    await self._came_up.wait()
        except TimeoutError:
            raise Unavailable(f"there was no link to {peer} within {deadline_s:.0f} s") from None
        return self._up[peer]

    @contextmanager
    def standing(self, peer: str, link: Link) -> Iterator[None]:
        """The link stands meanwhile."""
        self._up[peer] = link
        self._came_up.set()
        self._came_up = asyncio.Event()
        try:
            yield
        finally:
            self._up.pop(peer, None)


class Links:
    """Keeps one session's links up; `told(peer, link, error)` hears of every change of those that the plan needs.

    Others are there as long as weights are drawn over them (`also`), or nothing else leads to a member (`reach`), and
    it is nobody's fault if one can't be made.
    """

    def __init__(self, *, network: LinkMaker, standing: StandingLinks, told: Told, tasks: asyncio.TaskGroup) -> None:
        self._network = network
        self._standing = standing
        self._told = told
        self._tasks = tasks
        self._wanted: frozenset[str] = frozenset()
        self._epoch = 0  # whose plan wants them
        self._also: dict[str, frozenset[str]] = {}
        self._reached: frozenset[str] = frozenset()
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._candidates: dict[str, asyncio.Future[Sequence[Candidate]]] = {}
        self.other_ends = OtherEnds()

    def known(self, peer: str) -> Sequence[Candidate] | None:
        """Where it said last that it can be reached; None where it has not."""
        told = self._candidates.get(peer)
        return told.result() if told is not None and told.done() else None

    def learn(self, peer: str, candidates: Sequence[Candidate]) -> None:
        """A peer said where it can be reached now."""
        self._network.announced(peer, candidates)
        known = self._candidates_of(peer)
        if known.done():
            self._candidates[peer] = known = asyncio.get_running_loop().create_future()
        known.set_result(candidates)

    def want(self, peers: frozenset[str], *, epoch: int) -> None:
        """Hold exactly these links from now on, for the plan of that epoch: those that stand are told once for each
        plan, also where they were for the last one. What was told before may not be what the host has heard since."""
        known = self._wanted if epoch == self._epoch else frozenset[str]()
        self._epoch = epoch
        self._hold(peers)
        for peer in sorted((peers - known) & self._standing.up.keys()):
            self._told(peer, self._standing.up[peer], None)

    def _hold(self, peers: frozenset[str]) -> None:
        before, self._wanted = self._wanted, peers
        for peer in sorted(before - peers):
            if peer in self._needed and peer in self._standing.up:
                self._told(peer, None, None)
        self._keep_needed()

    def tell_settled(self, planned_s: Mapping[str, float]) -> None:
        """Links whose round trip is another one than the plan has for that peer: they were new then, and both ends
        busy."""
        for peer in sorted(self._wanted & planned_s.keys() & self._standing.up.keys()):
            link = self._standing.up[peer]
            if is_another_trip(planned_s[peer], link.rtt_s):
                self._told(peer, link, None)

    def also(self, member: str, peers: frozenset[str]) -> None:
        """Hold these links too, since that member draws weights over them."""
        self._also[member] = peers
        self._keep_needed()

    def reach(self, peers: frozenset[str]) -> None:
        """Hold these links too, since the rendezvous carries no word to them now."""
        self._reached = peers
        self._keep_needed()

    def renew(self, peer: str) -> None:
        """The link brings nothing any more: closes it here too, and makes it again if it is needed still."""
        if keeper := self._keepers.pop(peer, None):
            keeper.cancel()
            self._keep_needed()

    def forget(self, members: Collection[str]) -> None:
        """Closes the links to all but these, and forgets where the others can be reached."""
        self._also = {one: peers & frozenset(members) for one, peers in self._also.items() if one in members}
        self._reached &= frozenset(members)
        self._hold(self._wanted & frozenset(members))
        self._candidates = {peer: known for peer, known in self._candidates.items() if peer in members}

    async def close(self) -> None:
        """Closes all links and waits until they are down."""
        keepers = list(self._keepers.values())
        self._also.clear()
        self._reached = frozenset()
        self._hold(frozenset())
        await asyncio.gather(*keepers, return_exceptions=True)

    def _candidates_of(self, peer: str) -> "asyncio.Future[Sequence[Candidate]]":
        return self._candidates.setdefault(peer, asyncio.get_running_loop().create_future())

    @property
    def _needed(self) -> frozenset[str]:
        return self._wanted.union(self._reached, *self._also.values())

    def _keep_needed(self) -> None:
        needed = self._needed
        for peer in sorted(self._keepers.keys() - needed):
            self._keepers.pop(peer).cancel()
        for peer in sorted(needed - set(self._keepers)):
            self._keepers[peer] = self._tasks.create_task(self._keep(peer), name=f"link to {peer}")

    async def _keep(self, peer: str) -> None:
        while True:
            link = await self._open(peer)
            if link is None:
                await asyncio.sleep(PAUSE_S)
                continue
            try:
                with self._standing.standing(peer, link):
                    while not link.closed.done():
                        await link.measure()
                        self._tell(peer, link, None)
                        await link.moved()
            finally:
                await link.close()
            log.info("link_down peer=%s", peer)
            self._tell(peer, None, None)

    def _tell(self, peer: str, link: Link | None, error: KafilaError | None) -> None:
        if peer in self._wanted:
            self._told(peer, link, error)

    async def _open(self, peer: str) -> Link | None:
        try:
            async with asyncio.timeout(CANDIDATES_DEADLINE_S):
                candidates = await asyncio.shield(self._candidates_of(peer))
            return await self._network.dial(peer, candidates)
        except TimeoutError:
            self._tell(peer, None, Unavailable(f"{peer} did not say where it can be reached"))
        except KafilaError as error:
            self._tell(peer, None, error)
        return None
