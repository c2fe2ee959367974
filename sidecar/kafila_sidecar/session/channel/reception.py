"""Where newcomers knock at the host's door: the code that is valid now, and who gets in by it. No I/O."""

from collections.abc import Callable

from kafila_proto import ring_pb2
from kafila_sidecar.errors import KafilaError
from kafila_sidecar.session.admission.host import AdmissionAnswer, Enrol, HostAdmission
from kafila_sidecar.session.channel.events import Event
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.code import Code, draw_words

OpenAdmission = Callable[[Code, Callable[[], ring_pb2.OfferBody]], HostAdmission]


class Reception:
    """The code of one host and its admissions, from founding or taking over to the end. `answer` mails a newcomer."""

    def __init__(
        self,
        *,
        replica: Replica,
        room: int,
        address: RendezvousAddress,
        open_admission: OpenAdmission,
        answer: Callable[[AdmissionAnswer], None],
    ) -> None:
        self.code = code = Code(room, draw_words(), address)
        self._replica = replica
        self._admission = open_admission(code, self._offer)
        self._answer = answer

    @property
    def is_paused(self) -> bool:
        """The code was guessed too often: nobody gets in before there is a new one."""
        return self._admission.is_paused

    def new_code(self) -> None:
        """Fresh words in the same room; the old ones, and what they opened, are good for nothing."""
        self.code = Code(self.code.room, draw_words(), self.code.address)
        for answer in self._admission.renew(self.code):
            self._answer(answer)

    def departed(self, mailbox: int) -> None:
        """A newcomer's stream ended."""
        self._admission.departed(mailbox)

    def receive(self, mailbox: int, admission: ring_pb2.Admission, now: float) -> list[Event]:
        """Takes a newcomer's step and answers it; whoever was admitted is an event."""
        if mailbox in {member.mailbox for member in self._replica.members}:
            return []
        outcome = self._admission.receive(mailbox, admission, now)
        if isinstance(outcome, Enrol):
            return self._admit(outcome)
        self._answer(outcome)
        return []

    def _admit(self, enrol: Enrol) -> list[Event]:
        try:
            body, events = self._replica.admit(
                wish=enrol.body.name,
                certificate=enrol.body.certificate,
                agreement=enrol.body.agreement,
                mailbox=enrol.mailbox,
            )
        except KafilaError as error:
            self._answer(self._admission.refuse(enrol.mailbox, error))
            return []
        self._answer(self._admission.admit(enrol.mailbox, body))
        return events

    def _offer(self) -> ring_pb2.OfferBody:
        log = self._replica.log
        return ring_pb2.OfferBody(session=log.session, terms=log.terms, host=log.host, members_present=len(log.members))
