"""One session's weights on this machine: what is here, what others hold, and how either comes to the other."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, KafilaError, Refused, Unavailable
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.coordination import speech
from kafila_sidecar.session.driving.links import StandingLinks
from kafila_sidecar.sharing.courtesy import Courtesy
from kafila_sidecar.sharing.describing import take_down
from kafila_sidecar.sharing.holdings import tell
from kafila_sidecar.sharing.lending import Lender
from kafila_sidecar.sharing.rates import Rates
from kafila_sidecar.sharing.sources import Sources
from kafila_sidecar.sharing.vouching import Vouchers
from kafila_sidecar.weights.checkpoint import Checkpoint
from kafila_sidecar.weights.fetching.landing import Progress, Waiting
from kafila_sidecar.weights.format.ranges import Ranges
from kafila_sidecar.weights.store.library import in_use

log = logging.getLogger(__name__)

DESCRIBE_TRIES = 3
HOST_LINK_S = 60.0
"""For the link to the host over which a folder is described: it may have to hear of this member first."""


class SessionWeights:
    """Gives the stage its weights, the driver what members say of theirs, and members what is here.

    `checkpoint` is None for a folder that this machine does not know yet: `described` takes down in `folder` what the
    host tells of it, and opens it with `opened`.
    """

    def __init__(
        self,
        *,
        channel: Channel,
        checkpoint: Checkpoint | None,
        standing: StandingLinks,
        say: Callable[[ring_pb2.Control], None],
        folder: Path,
        rates: Rates,
        opened: Callable[[], Awaitable[Checkpoint]],
    ) -> None:
        self._channel = channel
        self._checkpoint = checkpoint
        self._standing = standing
        self._say = say
        self._folder = folder
        self._opened = opened
        self.rates = rates
        vouchers = Vouchers(
            identity=channel.identity,
            name=channel.self_name,
            revision=channel.terms.revision,
            members=lambda: channel.members,
        )
        self._sources = Sources(
            revision=channel.terms.revision, vouchers=vouchers, standing=standing, draw_from=self._draw_from
        )
        courtesy = Courtesy(lambda: min((link.quiet_s for link in standing.up.values()), default=math.inf))
        self._lender = Lender(checkpoint=lambda: self._checkpoint, vouchers=vouchers, courtesy=courtesy)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """None as long as this machine does not know it."""
        return self._checkpoint

    async def described(self) -> Checkpoint:
        """The checkpoint, once this machine knows it.

        Raises:
            KafilaError: nobody describes it, it is not what the session was made with, or is not offered.
        """
        if self._checkpoint is None:
            try:
                await self._take_down()
            finally:
                self._draw_from(())
            self._checkpoint = await self._opened()
            self._tell_holds()
        return self._checkpoint

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """See `Checkpoint.in_use`."""
        with in_use(self._folder) if self._checkpoint is None else self._checkpoint.in_use():
            yield

    async def answer(self, stream: Stream) -> None:
        """A member's ask for weights. Raises KafilaError when the stream broke."""
        await self._lender.answer(stream)

    # ---- For the stage

    @property
    def small_files(self) -> Path:
        return self._known.small_files

    def shard(self, *, start: int, end: int, head: bool) -> frozenset[str]:
        """See `Checkpoint.shard`."""
        return self._known.shard(start=start, end=end, head=head)

    async def fetch(
        self, names: Iterable[str], *, progress: Progress | None = None, waiting: Waiting | None = None
    ) -> None:
        """See `Checkpoint.fetch`; of members first."""
        wanted = frozenset(names)
        with self.rates.fetching(lambda: self._known.download_bytes(wanted)):
            await self._known.fetch(wanted, progress=progress, waiting=waiting, members=self._sources)
        self._tell_holds()

    def download_bytes(self, names: Iterable[str]) -> int:
        """See `Checkpoint.download_bytes`."""
        return self._known.download_bytes(names)

    def shard_bytes(self, names: Iterable[str]) -> int:
        """See `Checkpoint.shard_bytes`."""
        return self._known.shard_bytes(names)

    def files_for(self, names: Iterable[str]) -> dict[Path, frozenset[str]]:
        """See `Checkpoint.files_for`."""
        return self._known.files_for(names)

    # ---- For the driver (`session.driving.shares.Shares`)

    def holds(self) -> ring_pb2.Holds | None:
        """What others may take from here."""
        if self._checkpoint is None:
            return None
        return tell(self._checkpoint.held, sorted(self._checkpoint.manifest.files))

    def learn(self, member: str, held: Mapping[int, Ranges]) -> None:
        """What a member holds now."""
        self._sources.learn(member, held)

    def members(self, names: Collection[str]) -> None:
        """Who belongs to the session now."""
        self._sources.members(names)

    # ---- Private

    @property
    def _known(self) -> Checkpoint:
        if self._checkpoint is None:
            raise Unavailable("this machine does not know the session's model yet")
        return self._checkpoint

    async def _take_down(self) -> None:
        for left in reversed(range(DESCRIBE_TRIES)):
            host = self._channel.host
            self._draw_from([host])
            try:
                link = await self._standing.until_up(host, HOST_LINK_S)
                await take_down(link, revision=self._channel.terms.revision, folder=self._folder)
            except (Refused, Denied):
                raise
            except KafilaError as error:
                log.info("folder_not_described by=%s code=%s", host, error.code)
                if not left:
                    raise
                await asyncio.sleep(1.0)
            else:
                return

    def _draw_from(self, sources: Iterable[str]) -> None:
        self._say(speech.draws(sources))

    def _tell_holds(self) -> None:
        if holds := self.holds():
            self._say(ring_pb2.Control(holds=holds))
