"""The other members as sources of one checkpoint's weights, for its fetcher (`weights.fetching.landing.Members`)."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kafila_sidecar.errors import Exhausted, KafilaError, Unavailable
from kafila_sidecar.net.link.link import RELAY, Link
from kafila_sidecar.session.driving.links import StandingLinks
from kafila_sidecar.sharing.borrowing import Borrower, Wrong
from kafila_sidecar.sharing.holdings import HeldByMembers, share_out
from kafila_sidecar.sharing.vouching import Vouchers
from kafila_sidecar.weights.fetching.landing import Landing
from kafila_sidecar.weights.format.ranges import Ranges
from kafila_sidecar.weights.format.units import Unit, units_in

log = logging.getLogger(__name__)

LINK_S = 25.0
"""For a link to a source that the plan needs none to."""
BUSY_S = 1.0
BUSY_TRIES = 20
"""A source that has no room for one more is asked again so often, after this pause."""


@dataclass(slots=True)
class Tried:
    """In one fetch: who could not be asked, and who has not what it told."""

    failed: set[str] = field(default_factory=set)
    absent: set[tuple[str, Unit]] = field(default_factory=set)


class Sources:
    """`draw_from` tells everybody whom this member takes weights from now, so that both ends make a link."""

    def __init__(
        self,
        *,
        revision: str,
        vouchers: Vouchers,
        standing: StandingLinks,
        draw_from: Callable[[Iterable[str]], None],
        link_s: float = LINK_S,
    ) -> None:
        self.borrower = Borrower(revision=revision, vouchers=vouchers, trusts=self.trusts)
        self.distrusted: set[str] = set()
        self._vouchers = vouchers
        self._standing = standing
        self._draw_from = draw_from
        self._link_s = link_s
        self._holdings = HeldByMembers()
        self._drawing: set[str] = set()
        self._news = asyncio.Event()

    def trusts(self, member: str) -> bool:
        """Whether a member has not given anything wrong."""
        return member not in self.distrusted

    def learn(self, member: str, held: Mapping[int, Ranges]) -> None:
        """What a member holds now, by the place of the file among the sorted names."""
        self._holdings.learn(member, held)
        self._news.set()

    def members(self, names: Collection[str]) -> None:
        """Who belongs to the session now."""
        self._holdings.members(names)

    # ---- For the fetcher

    async def bring(self, landing: Landing) -> None:
        """As much of what is missing as others can give; sources that vanish are done without."""
        tried = Tried()
        before_bytes = self.borrower.borrowed_bytes
        try:
            while shares := self._shares(landing, tried):
                await asyncio.gather(*(self._take(source, units, landing, tried) for source, units in shares.items()))
        finally:
            self._end_drawing()
            log.info(
                "weights_borrowed bytes=%d checked_bytes=%d told_by=%s",
                self.borrower.borrowed_bytes - before_bytes,
                self.borrower.checked_bytes,
                ",".join(self._holdings.tellers),
            )

    async def more(self, wait_s: float) -> bool:
        """Waits until somebody told that it holds more; false if nobody does in that time."""
        self._news.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def gave(self, file: str) -> list[Unit]:
        """What of a file came from members."""
        return self._vouchers.kept_of(file)

    def distrust(self, landing: Landing, units: list[Unit], sentence: str) -> None:
        """They gave something wrong: these units are fetched elsewhere, and they are asked no more. Blocks."""
        self.distrusted |= self._vouchers.givers_of(units)
        self._vouchers.forget(units)
        landing.drop(units)
        landing.tally.notice(sentence)

    # ---- Private

    def _shares(self, landing: Landing, tried: Tried) -> dict[str, list[Unit]]:
        """What to ask of whom next; nothing once nobody else has anything of it."""
        place = {name: number for number, name in enumerate(sorted(landing.manifest.files))}
        holders = {
            unit: [
                member
                for member in self._holdings.holders(place[unit.file], unit)
                if member not in tried.failed and (member, unit) not in tried.absent and self._is_good(member, landing)
            ]
            for unit in units_in(landing.manifest, landing.missing)
        }
        return share_out(holders, self._standing.up)

    def _is_good(self, member: str, landing: Landing) -> bool:
        """The relay is somebody's server: it carries weights only where there is no other way to have them."""
        link = self._standing.up.get(member)
        return self.trusts(member) and not (link is not None and is_costly(link, landing))

    async def _take(self, source: str, units: list[Unit], landing: Landing, tried: Tried) -> None:
        try:
            absent = await self._taken(await self._link(source, landing), units, landing)
            tried.absent |= {(source, unit) for unit in absent}
        except Wrong as error:
            log.warning("weights_wrong member=%s sent_by=%s", error.by, source)
            self.distrusted.add(error.by)
            await asyncio.to_thread(self.distrust, landing, self._vouchers.given_by(error.by), str(error))
        except KafilaError as error:
            log.info("source_lost member=%s code=%s", source, error.code)
            tried.failed.add(source)

    async def _taken(self, link: Link, units: list[Unit], landing: Landing) -> list[Unit]:
        for _ in range(BUSY_TRIES):
            try:
                return await self.borrower.take(link, units, landing)
            except Exhausted:
                await asyncio.sleep(BUSY_S)
        raise Unavailable(f"{link.peer} gives weights to many others")

    async def _link(self, source: str, landing: Landing) -> Link:
        """To a source, made for this if need be. Raises Unavailable."""
        if source not in self._standing.up:
            self._drawing.add(source)
            self._draw_from(self._drawing)
        link = await self._standing.until_up(source, self._link_s)
        if is_costly(link, landing):
            raise Unavailable(f"{source} is reached over the relay only")
        return link

    def _end_drawing(self) -> None:
        if self._drawing:
            self._drawing.clear()
            self._draw_from(())


def is_costly(link: Link, landing: Landing) -> bool:
    return landing.digest is not None and link.path == RELAY
