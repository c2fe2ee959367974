"""The host's side of admission: one exchange for each newcomer's mailbox. No I/O, no clock.

Only who proved the code learns anything of the session, be it an offer or why it is refused. After `MOST_GUESSES`
exchanges that nobody confirmed, joining pauses until there is a new code.
"""

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import DecodeError, Message

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, Exhausted, InvalidInput, KafilaError, Refused, Unavailable
from kafila_sidecar.session.admission.pake import Entropy, Guesses, HostPake
from kafila_sidecar.session.admission.versions import Protocols, Versions, check_versions, tell_offer, told_by
from kafila_sidecar.session.membership.seal import Sealer
from kafila_sidecar.session.rendezvous.code import Code

OFFER_TTL_S = 900.0  # a person reads what joining means, and thinks about it
PROOF_TTL_S = 60.0
MOST_EXCHANGES = 64
MOST_GUESSES = 5  # of one code: 5 in 2^33 are one chance in 1.7 thousand million

NEWCOMER_CONTEXT, HOST_CONTEXT = b"kafila admission, newcomer", b"kafila admission, admitter"

# (state, step that came) -> next state. Any other pair ends the exchange.
EXCHANGE = {("new", "start"): "challenged", ("challenged", "confirm"): "offered", ("offered", "enrol"): "enrolled"}

MayAdmit = Callable[[], KafilaError | None]


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """What goes to a newcomer's mailbox."""

    mailbox: int
    admission: ring_pb2.Admission


@dataclass(frozen=True, slots=True)
class Enrol:
    """A newcomer that proved the code asks to be admitted; answer with `HostAdmission.admit` or `refuse`."""

    mailbox: int
    body: ring_pb2.EnrolBody


@dataclass(slots=True)
class _Exchange:
    pake: HostPake
    deadline: float
    state: str = "new"


class HostAdmission:
    """Answers newcomers. `offer` gives the session as it is now, without the confirmation."""

    def __init__(
        self,
        *,
        code: Code,
        guesses: Guesses,
        versions: Versions,
        offer: Callable[[], ring_pb2.OfferBody],
        may_admit: MayAdmit,
        entropy: Entropy,
    ) -> None:
        self._code = code
        self._guesses = guesses
        self._versions = versions
        self._offer = offer
        self._may_admit = may_admit
        self._entropy = entropy
        self._exchanges: dict[int, _Exchange] = {}

    @property
    def is_paused(self) -> bool:
        """The code was guessed wrongly too often, as far as exchanges that go on now don't turn out to be right."""
        return self._guesses.count - self._undecided >= MOST_GUESSES

    @property
    def exchanges(self) -> int:
        """That go on, or wait for a person."""
        return len(self._exchanges)

    def renew(self, code: Code) -> list[AdmissionAnswer]:
        """A new code: guesses count from zero, and who came by the old one has to come again."""
        self._code = code
        self._guesses.renew()
        changed = Denied("the session has a new code: ask for it, and start again")
        return [self.refuse(mailbox, changed) for mailbox in list(self._exchanges)]

    def receive(self, mailbox: int, admission: ring_pb2.Admission, now: float) -> AdmissionAnswer | Enrol:
        """Takes a newcomer's step; what is wrong with it becomes a refusal."""
        self._forget_late(now)
        step = admission.WhichOneof("step") or "nothing"
        try:
            if step == "start":
                self._open(mailbox, now)
            exchange = self._advance(mailbox, step)
            match step:
                case "start":
                    return self._start(mailbox, exchange, admission.start)
                case "confirm":
                    return self._confirm(mailbox, exchange, admission.confirm, now)
                case _:
                    return self._enrol(mailbox, exchange, admission.enrol)
        except KafilaError as error:
            return self.refuse(mailbox, error)

    def admit(self, mailbox: int, body: ring_pb2.AdmittedBody) -> AdmissionAnswer:
        """The last answer to an `Enrol`; raises InvalidInput when that newcomer is gone."""
        exchange = self._exchanges.pop(mailbox, None)
        if exchange is None:
            raise InvalidInput("the newcomer to admit is gone")
        return AdmissionAnswer(mailbox, ring_pb2.Admission(admitted=_seal(exchange.pake, body, self._entropy)))

    def refuse(self, mailbox: int, error: KafilaError) -> AdmissionAnswer:
        """Ends an exchange. Sealed for who proved the code; else the newcomer trusts only the refusal's code."""
        exchange = self._exchanges.pop(mailbox, None)
        refusal = ring_pb2.Refusal(code=error.code, sentence=str(error))
        if exchange is not None and exchange.pake.state == "proved":
            return AdmissionAnswer(mailbox, ring_pb2.Admission(refused=_seal(exchange.pake, refusal, self._entropy)))
        return AdmissionAnswer(mailbox, ring_pb2.Admission(refusal=refusal))

    def departed(self, mailbox: int) -> None:
        """The newcomer's stream ended; an exchange that it did not confirm stays counted."""
        self._exchanges.pop(mailbox, None)

    def _open(self, mailbox: int, now: float) -> None:
        self._exchanges.pop(mailbox, None)
        if self.is_paused:
            raise Exhausted("joining is paused: too many wrong guesses")
        if self.exchanges >= MOST_EXCHANGES or self._guesses.count >= MOST_GUESSES:
            raise Unavailable("many newcomers are at the door already: try again in a minute")
        pake = HostPake(self._code.password, self._code.room, self._guesses, self._entropy)
        self._exchanges[mailbox] = _Exchange(pake, now + PROOF_TTL_S)

    def _advance(self, mailbox: int, step: str) -> _Exchange:
        exchange = self._exchanges.get(mailbox)
        if exchange is None or (exchange.state, step) not in EXCHANGE:
            raise InvalidInput(f"{step} does not belong here in an admission: start again")
        exchange.state = EXCHANGE[exchange.state, step]
        return exchange

    def _start(self, mailbox: int, exchange: _Exchange, start: ring_pb2.PakeStart) -> AdmissionAnswer:
        ours, theirs = self._versions.protocols, Protocols(start.oldest_protocol or start.protocol, start.protocol)
        spoken = ours.common(theirs)
        if spoken is None:
            raise Refused(f"this session speaks protocol {ours.newest}, the newcomer {theirs.newest}")
        reply = ring_pb2.PakeReply(message=exchange.pake.receive_start(start.message, spoken))
        if spoken != theirs.newest:
            reply.protocol = spoken
        return AdmissionAnswer(mailbox, ring_pb2.Admission(reply=reply))

    def _confirm(self, mailbox: int, exchange: _Exchange, confirm: ring_pb2.PakeConfirm, now: float) -> AdmissionAnswer:
        confirm_mac = exchange.pake.receive_confirm(confirm.mac)
        self._check_may_admit()
        exchange.deadline = now + OFFER_TTL_S
        offer = self._offer()
        offer.confirm_mac = confirm_mac
        tell_offer(self._versions, offer)
        return AdmissionAnswer(mailbox, ring_pb2.Admission(offer=_seal(exchange.pake, offer, self._entropy)))

    def _enrol(self, mailbox: int, exchange: _Exchange, sealed: ring_pb2.Sealed) -> Enrol:
        sealer = Sealer(exchange.pake.keys.newcomer_seal, NEWCOMER_CONTEXT, self._entropy)
        try:
            body = ring_pb2.EnrolBody.FromString(sealer.open(sealed))
        except DecodeError as error:
            raise InvalidInput("an enrolment can't be read") from error
        check_versions(session=self._versions, newcomer=told_by(body))
        self._check_may_admit()
        return Enrol(mailbox, body)

    def _check_may_admit(self) -> None:
        obstacle = self._may_admit()
        if obstacle is not None:
            raise obstacle

    @property
    def _undecided(self) -> int:
        """Exchanges that are counted as guesses, and may turn out to be none."""
        return sum(exchange.pake.state == "challenged" for exchange in self._exchanges.values())

    def _forget_late(self, now: float) -> None:
        for mailbox in [mailbox for mailbox, exchange in self._exchanges.items() if exchange.deadline <= now]:
            del self._exchanges[mailbox]


def _seal(pake: HostPake, body: Message, entropy: Entropy) -> ring_pb2.Sealed:
    return Sealer(pake.keys.host_seal, HOST_CONTEXT, entropy).seal(body.SerializeToString())
