"""The newcomer's side of admission: proves the code, reads the offer, enrols. No I/O, no clock."""

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from kafila_proto import ring_pb2
from kafila_sidecar.errors import (
    Denied,
    Exhausted,
    InvalidInput,
    KafilaError,
    Refused,
    Unavailable,
    from_code,
)
from kafila_sidecar.session.admission.host import HOST_CONTEXT, NEWCOMER_CONTEXT
from kafila_sidecar.session.admission.pake import WRONG_WORDS, Entropy, NewcomerPake
from kafila_sidecar.session.admission.versions import PROTOCOLS, Protocols
from kafila_sidecar.session.membership.seal import Sealer
from kafila_sidecar.session.rendezvous.code import Code

Body = TypeVar("Body", bound=Message)

PAUSED = (
    "nobody can join this session at present, since its code was guessed wrongly too often: "
    "ask its host for a new code (`ollama session code --new`)"
)


class HostBusy(Unavailable):
    """The host asks to try again in a moment, before this machine confirmed or after it proved the code itself: trying
    again gives nothing away."""


# (state, what happens) -> next state. Any other pair is refused.
NEWCOMER = {
    ("new", "send start"): "started",
    ("started", "reply"): "confirming",
    ("confirming", "offer"): "offered",
    ("offered", "send enrol"): "enrolling",
    ("enrolling", "admitted"): "admitted",
}


class Newcomer:
    """One attempt to join; `offer` and `admitted` hold what the host sealed."""

    def __init__(self, code: Code, entropy: Entropy, protocols: Protocols = PROTOCOLS) -> None:
        self.state = "new"
        self.offer = ring_pb2.OfferBody()
        self.admitted = ring_pb2.AdmittedBody()
        self._entropy = entropy
        self._protocols = protocols
        self._pake = NewcomerPake(code.password, code.room, entropy)

    def start(self) -> ring_pb2.Admission:
        """The first step."""
        self._advance("send start")
        start = ring_pb2.PakeStart(protocol=self._protocols.newest, message=self._pake.start())
        if self._protocols.oldest != self._protocols.newest:
            start.oldest_protocol = self._protocols.oldest
        return ring_pb2.Admission(start=start)

    def enrol(self, body: ring_pb2.EnrolBody) -> ring_pb2.Admission:
        """Takes the offer up."""
        self._advance("send enrol")
        sealer = Sealer(self._pake.keys.newcomer_seal, NEWCOMER_CONTEXT, self._entropy)
        return ring_pb2.Admission(enrol=sealer.seal(body.SerializeToString()))

    def receive(self, admission: ring_pb2.Admission) -> ring_pb2.Admission | None:
        """Takes the host's step, returns the next one of ours if it is our turn.

        Raises Denied for wrong words, what the host refused with, or InvalidInput for nonsense.
        """
        step = admission.WhichOneof("step") or "nothing"
        if step == "refusal":
            raise _in_own_words(admission.refusal.code, confirmed=self.state != "started")
        if step == "refused":
            refusal = self._open(ring_pb2.Refusal(), admission.refused)
            if refusal.code == Unavailable.code:
                raise HostBusy(refusal.sentence)
            raise from_code(refusal.code, refusal.sentence)
        self._advance(step)
        if step == "reply":
            spoken = admission.reply.protocol or self._protocols.newest
            if not self._protocols.oldest <= spoken <= self._protocols.newest:
                raise InvalidInput(f"the session's host goes on in protocol {spoken}, which this machine did not offer")
            mac = self._pake.receive_reply(admission.reply.message, spoken)
            return ring_pb2.Admission(confirm=ring_pb2.PakeConfirm(mac=mac))
        if step == "offer":
            self._open(self.offer, admission.offer)
            self._pake.receive_mac(self.offer.confirm_mac)
        else:
            self._open(self.admitted, admission.admitted)
        return None

    def _open(self, body: Body, sealed: ring_pb2.Sealed) -> Body:
        """Fills `body` with what the host sealed; a wrong key means that the words differ."""
        sealer = Sealer(self._pake.keys.host_seal, HOST_CONTEXT, self._entropy)
        try:
            body.MergeFromString(sealer.open(sealed))
        except DecodeError as error:
            raise InvalidInput("the session's host sent something that can't be read") from error
        return body

    def _advance(self, event: str) -> None:
        if (self.state, event) not in NEWCOMER:
            raise InvalidInput(f"{event} does not belong to the state {self.state} of joining")
        self.state = NEWCOMER[self.state, event]


def _in_own_words(code: str, *, confirmed: bool) -> KafilaError:
    """Before the code is proved anybody may have written a refusal, so its sentence is not shown.

    Each confirmation lets whoever answers test one guess of the words, so after one only a person tries again.
    """
    match code:
        case Denied.code:
            return Denied(WRONG_WORDS)
        case Exhausted.code:
            return Refused(PAUSED)
        case Refused.code:
            return Refused("this session speaks another protocol version: install the Kafila version that its host has")
        case _:
            sentence = "the session's host did not go on with this machine: try again in a minute"
            return Unavailable(sentence) if confirmed else HostBusy(sentence)
