"""Attending a mailbox for as long as its room exists: reads the stream, and opens it again whenever it breaks."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from kafila_proto import rendezvous_pb2 as pb
from kafila_sidecar.errors import Denied, KafilaError, NotFound
from kafila_sidecar.session.rendezvous.mailbox import Mailbox

logger = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0  # before attending a lost rendezvous again


@dataclass(frozen=True, slots=True)
class RendezvousLost:
    """The rendezvous does not answer. Messages wait, or travel over links."""


@dataclass(frozen=True, slots=True)
class RendezvousBack:
    """The rendezvous answers again, and the mailbox is the same."""


@dataclass(frozen=True, slots=True)
class RoomGone:
    """The rendezvous forgot this session's room or mailbox; from now on only links carry messages."""


Sighting = pb.Event | RendezvousLost | RendezvousBack | RoomGone


async def sightings(mailbox: Mailbox) -> AsyncIterator[Sighting]:
    """Events of an attended mailbox, with `RendezvousLost` and `RendezvousBack` where its stream broke.

    Ends after `RoomGone`: the rendezvous forgot the room, or gave its number to others after a restart.
    """
    try:
        while True:
            try:
                event = await mailbox.next()
            except (NotFound, Denied):
                raise
            except KafilaError as error:
                logger.info("rendezvous_lost code=%s", error.code)
                yield RendezvousLost()
                await _attend_again(mailbox)
                yield RendezvousBack()
            else:
                yield event
    except (NotFound, Denied):
        yield RoomGone()


async def _attend_again(mailbox: Mailbox) -> None:
    """Tries for as long as the session lives, since members wait for nothing else to change."""
    pause_s = FIRST_PAUSE_S
    while True:
        await asyncio.sleep(pause_s)
        try:
            await mailbox.attend()
        except (NotFound, Denied):
            raise
        except KafilaError:
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        else:
            return
