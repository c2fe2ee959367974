"""Mail on its way out: in order, kept while the rendezvous does not answer, bounded."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable

from kafila_sidecar.errors import Exhausted, KafilaError, Unavailable
from kafila_sidecar.session.rendezvous.mailbox import Mailbox

logger = logging.getLogger(__name__)

MOST_WAITING = 256  # messages; beyond, the oldest goes: links carry what matters, and states are told again
PAUSE_S = 0.5  # after a post that failed, before it is tried again


class Outbox:
    """Posts what `put` gives it; `run` is its one task."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._waiting: deque[tuple[tuple[int, ...], bytes]] = deque(maxlen=MOST_WAITING)
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._is_open = asyncio.Event()
        self._is_open.set()

    def hold(self) -> None:
        """Posts nothing for now: while this member's mailbox is not attended, an answer would be lost."""
        self._is_open.clear()

    def go_on(self) -> None:
        """The mailbox is attended again."""
        self._is_open.set()

    def put(self, to: Iterable[int], body: bytes) -> None:
        """Mail for these mailboxes; for none, nothing happens."""
        mailboxes = tuple(to)
        if mailboxes:
            self._waiting.append((mailboxes, body))
            self._filled.set()
            self._emptied.clear()

    def move(self, mailbox: Mailbox) -> None:
        """From now on through another one; what waits was for mailboxes of the room before."""
        self._mailbox = mailbox
        self.drop()
        self.go_on()

    def drop(self) -> None:
        """What waits is said no more."""
        self._waiting.clear()

    async def emptied(self) -> None:
        """Returns when nothing waits any more."""
        await self._emptied.wait()

    async def run(self) -> None:
        """Posts for ever."""
        while True:
            await self._filled.wait()
            await self._is_open.wait()
            if self._waiting:
                await self._post_first()
            if not self._waiting:
                self._filled.clear()
                self._emptied.set()

    async def _post_first(self) -> None:
        first = self._waiting[0]
        try:
            await self._mailbox.post(*first)
        except (Unavailable, Exhausted):
            await asyncio.sleep(PAUSE_S)  # tried again for as long as the session lives: members wait for it
            return
        except KafilaError as error:
            logger.warning("mail_refused code=%s", error.code)
        if self._waiting and self._waiting[0] is first:
            self._waiting.popleft()
