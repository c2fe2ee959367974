"""The links that one session needs now: opened side by side, again when they break, closed when not needed."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from kafila_sidecar.errors import KafilaError, Unavailable
from kafila_sidecar.net.candidates import Candidate
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.session.coordination.effects import Json

log = logging.getLogger(__name__)

OPEN_DEADLINE_S = 20.0
CANDIDATES_DEADLINE_S = 30.0
AGAIN_S = 2.0  # between two tries at a link that can't be made

Told = Callable[[str, Link | None, KafilaError | None], None]


class LinkMaker(Protocol):
    """Makes this session's links; `reaching.Reaching`."""

    def start(self, changed: Callable[[], None]) -> None: ...
    def stop(self) -> None: ...
    def candidates(self) -> Sequence[Candidate]: ...
    def announced(self, peer: str, candidates: Sequence[Candidate]) -> None: ...
    async def entry(self) -> Json: ...
    async def dial(self, peer: str, candidates: Sequence[Candidate]) -> Link: ...


class StandingLinks:
    """One session's links that stand now, by peer name."""

    def __init__(self) -> None:
        self._up: dict[str, Link] = {}

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

    @contextmanager
    def standing(self, peer: str, link: Link) -> Iterator[None]:
        """The link stands meanwhile."""
        self._up[peer] = link
        try:
            yield
        finally:
            self._up.pop(peer, None)


class Links:
    """Keeps one session's links up; `told(peer, link, error)` hears of every change."""

    def __init__(self, *, network: LinkMaker, standing: StandingLinks, told: Told, tasks: asyncio.TaskGroup) -> None:
        self._network = network
        self._standing = standing
        self._told = told
        self._tasks = tasks
        self._wanted: frozenset[str] = frozenset()
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._candidates: dict[str, asyncio.Future[Sequence[Candidate]]] = {}

    def learn(self, peer: str, candidates: Sequence[Candidate]) -> None:
        """A peer said where it can be reached now."""
        self._network.announced(peer, candidates)
        known = self._candidates_of(peer)
        if known.done():
            self._candidates[peer] = known = asyncio.get_running_loop().create_future()
        known.set_result(candidates)

    def want(self, peers: frozenset[str]) -> None:
        """Hold exactly these links from now on."""
        self._wanted = peers
        for peer in set(self._keepers) - peers:
            self._keepers.pop(peer).cancel()
        for peer in sorted(peers - set(self._keepers)):
            self._keepers[peer] = self._tasks.create_task(self._keep(peer), name=f"link to {peer}")

    def forget(self, members: Collection[str]) -> None:
        """Closes the links to all but these, and forgets where the others can be reached."""
        self.want(self._wanted & frozenset(members))
        self._candidates = {peer: known for peer, known in self._candidates.items() if peer in members}

    async def close(self) -> None:
        """Closes all links and waits until they are down."""
        keepers = list(self._keepers.values())
        self.want(frozenset())
        await asyncio.gather(*keepers, return_exceptions=True)

    def _candidates_of(self, peer: str) -> "asyncio.Future[Sequence[Candidate]]":
        return self._candidates.setdefault(peer, asyncio.get_running_loop().create_future())

    async def _keep(self, peer: str) -> None:
        while True:
            link = await self._open(peer)
            if link is None:
                await asyncio.sleep(AGAIN_S)
                continue
            try:
                with self._standing.standing(peer, link):
                    while not link.closed.done():
                        self._told(peer, link, None)
                        await link.moved()
            finally:
                await link.close()
            log.info("link_down peer=%s", peer)
            self._told(peer, None, None)

    async def _open(self, peer: str) -> Link | None:
        try:
            async with asyncio.timeout(CANDIDATES_DEADLINE_S):
                candidates = await asyncio.shield(self._candidates_of(peer))
            return await self._network.dial(peer, candidates)
        except TimeoutError:
            self._told(peer, None, Unavailable(f"{peer} did not say where it can be reached"))
        except KafilaError as error:
            self._told(peer, None, error)
        return None
