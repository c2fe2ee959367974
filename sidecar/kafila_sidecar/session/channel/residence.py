"""Where a session's room is for one member: its mailbox there, those of the others, and how all of that moves."""

import asyncio
import logging
from collections.abc import Callable

from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.session.channel.events import MessageFrom
from kafila_sidecar.session.channel.moving import Mover
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.channel.whereabouts import Whereabouts
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.session.rendezvous.elsewhere import Elsewhere
from kafila_sidecar.session.rendezvous.mailbox import Mailbox

logger = logging.getLogger(__name__)


class Residence:
    """`say` tells all others; `arrived` is called with the mailbox before once this member is in another room."""

    def __init__(
        self,
        *,
        replica: Replica,
        mailbox: Mailbox,
        elsewhere: Elsewhere,
        trial_s: float,
        say: Callable[[ring_pb2.Control], None],
        arrived: Callable[[Mailbox], None],
    ) -> None:
        log = replica.log
        self.where = Whereabouts(log.founder if log.terms.rendezvous_at_host else "")
        self.mover = Mover(self, self.where, elsewhere, trial_s)
        self.note: str | None = None  # who can reach the rendezvous, once this member has moved the session to one
        self.is_known = True  # the rendezvous knows the room
        self._replica = replica
        self._mailbox = mailbox
        self._say = say
        self._arrived = arrived

    @property
    def mailbox(self) -> Mailbox:
        return self._mailbox

    def is_at(self, code: Code) -> bool:
        """Whether a code's number and address are those of the room."""
        return self.is_known and (code.room, code.address) == (self._mailbox.place.room, self._mailbox.address)

    def settled(self) -> list[Member]:
        """The others who are known to have a mailbox here, with that one."""
        return self.where.settled(self.others)

    def hear(self, message: MessageFrom, group: asyncio.TaskGroup) -> list[Member] | None:
        """Takes what is said of moves; who is known to be here since then. None: it says something else."""
        sender, control = self._replica.log.member(message.sender), message.control
        body = control.WhichOneof("body")
        if body not in ("moved", "moved_in"):
            return None
        before = self.settled()
        if sender is not None and body == "moved_in":
            self.mover.came(sender, control.moved_in)
        elif sender is not None and sender.name == self._replica.log.host:
            try:
                self.mover.told(control.moved, sender, group)
            except InvalidInput as error:
                logger.info("message_dropped code=%s", error.code)
        return [member for member in self.settled() if member not in before]

    def lose(self) -> None:
        """The rendezvous has forgotten the room."""
        self.is_known = False
        self.mover.lost(forgotten=True)

    # ---- As `Mover` sees it

    @property
    def is_host(self) -> bool:
        return self._replica.is_host

    @property
    def me(self) -> Member:
        """This member, as it came or came back."""
        return self._replica.log.member(self._replica.self_name) or self._replica.me

    @property
    def others(self) -> tuple[Member, ...]:
        return self._replica.others

    @property
    def takeovers(self) -> int:
        return self._replica.log.now.takeovers

    @property
    def log_length(self) -> int:
        return len(self._replica.log)

    def say(self, control: ring_pb2.Control) -> None:
        """To all others."""
        self._say(control)

    def settle(self, mailbox: Mailbox, move: ring_pb2.Moved, note: str) -> None:
        """This member's mailbox is another one, in another room, from now on."""
        logger.info("room_moved move=%d", move.number)
        before, self._mailbox, self.is_known, self.note = self._mailbox, mailbox, True, note
        self.where.moved(move, self._replica.log.host)
        self._arrived(before)
