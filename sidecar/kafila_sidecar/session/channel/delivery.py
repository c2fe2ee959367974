"""Sealed messages on their way out: by mail to each reader, and by every way that is attached."""

import asyncio
from collections.abc import Iterable, Sequence

from kafila_proto import ring_pb2
from kafila_sidecar.session.admission.host import AdmissionAnswer
from kafila_sidecar.session.channel.gossip import Ways
from kafila_sidecar.session.channel.whereabouts import Whereabouts
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.membership.seal import is_for_all
from kafila_sidecar.session.rendezvous.mailbox import Mailbox
from kafila_sidecar.session.rendezvous.outbox import Outbox


class Delivery:
    """One channel's. `run` is its one task."""

    def __init__(self, mailbox: Mailbox, where: Whereabouts) -> None:
        self._where = where
        self.ways = Ways()
        self.outbox = Outbox(mailbox)

    def spread(self, sealed: bytes, readers: Sequence[Member]) -> None:
        """By mail to these members, and by every way; what is for one member only by the ways that lead there."""
        self.mail(sealed, readers)
        if is_for_all(sealed):
            self.ways.put(sealed)
        else:
            self.ways.put_for({member.name for member in readers}, sealed)

    def mail(self, sealed: bytes, readers: Iterable[Member]) -> None:
        """By mail alone, to those who are known to have a mailbox in the present room."""
        parcel = ring_pb2.Parcel(envelope=ring_pb2.Sealed.FromString(sealed))
        self.outbox.put((one.mailbox for one in self._where.settled(readers)), parcel.SerializeToString())

    def answer(self, answer: AdmissionAnswer) -> None:
        """By mail to a newcomer."""
        self.outbox.put([answer.mailbox], ring_pb2.Parcel(admission=answer.admission).SerializeToString())

    async def emptied(self) -> None:
        """Returns when nothing waits any more."""
        await self.outbox.emptied()
        await self.ways.emptied()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.outbox.run())
            group.create_task(self.ways.run())
