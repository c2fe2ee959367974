"""Who answers members that come back: the host, or another one that comes back itself. No I/O, no clock.

One exchange for each knocking mailbox. It counts no guess, since there is nothing to guess; who is no member hears
nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError, Message

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput, KafilaError, NotFound
from kafila_sidecar.session.admission.host import AdmissionAnswer
from kafila_sidecar.session.admission.pake import Entropy
from kafila_sidecar.session.admission.proving import (
    ANSWERER_CONTEXT,
    CHALLENGE,
    PROOF,
    REFUSAL,
    RETURNER_CONTEXT,
    WAIT,
    WELCOME,
    ExchangeKeys,
    answerers_keys,
    draw_ephemeral,
    fits,
    public_of,
)
from kafila_sidecar.session.admission.versions import Versions, check_versions, told_by
from kafila_sidecar.session.membership.identity import Identity, public_key_of, verify
from kafila_sidecar.session.membership.log import Log
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.membership.seal import Sealer

KNOCK_TTL_S = 60.0
MOST_KNOCKS = 128  # one for each place in a room, or who was put out could take those of others by their names

STEPS = frozenset({"knock", "proof"})  # that come to this side


@dataclass(frozen=True, slots=True)
class ProvedMember:
    """A member that was in the session stands at the door of this mailbox; answer by `welcome`, `wait`, `direct` or
    `refuse`."""

    mailbox: int
    member: Member  # as it was admitted first
    body: ring_pb2.ProofBody
    keys: ExchangeKeys = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Knock:
    member: Member
    keys: ExchangeKeys
    deadline: float


def never_back(log: Log, member: Member) -> Denied:
    """What to say to somebody who can't ever come back."""
    if member in log.strays:
        return Denied(
            f"the host who let {member.name} in had been succeeded by then, and the others don't know this machine: ask"
            " for the session's code and join again"
        )
    return Denied(f"{member.name} left this session or was removed from it: ask for its code to join again")


class Doorstep:
    """`log` gives the answerer's own."""

    def __init__(
        self, *, log: Callable[[], Log], name: str, identity: Identity, versions: Versions, entropy: Entropy
    ) -> None:
        """`name`: the answerer's own."""
        self._log = log
        self._name = name
        self._identity = identity
        self._versions = versions
        self._entropy = entropy
        self._knocks: dict[int, _Knock] = {}

    def receive(self, mailbox: int, admission: ring_pb2.Admission, now: float) -> AdmissionAnswer | ProvedMember | None:
        """Takes a step; None for what nobody is told anything of."""
        self._knocks = {key: knock for key, knock in self._knocks.items() if knock.deadline > now}
        try:
            if admission.HasField("knock"):
                return self._challenge(mailbox, admission.knock, now)
            return self._proved(mailbox, admission.proof)
        except InvalidInput:
            return None

    def departed(self, mailbox: int) -> None:
        """Its stream ended."""
        self._knocks.pop(mailbox, None)

    def welcome(self, proved: ProvedMember, *, name: str, key: bytes, log: Log) -> AdmissionAnswer:
        """The host takes it back: it is a member by the last entry of this log."""
        signature = self._identity.sign(WELCOME, proved.keys.transcript)
        body = ring_pb2.WelcomeBody(name=name, key=key, log=log.bare, signature=signature)
        return AdmissionAnswer(proved.mailbox, ring_pb2.Admission(welcome=self._seal(proved.keys, body)))

    def wait(self, proved: ProvedMember) -> AdmissionAnswer:
        """This one comes back too, and nobody can take the other one back yet."""
        body = ring_pb2.WaitBody(signature=self._identity.sign(WAIT, proved.keys.transcript))
        return AdmissionAnswer(proved.mailbox, ring_pb2.Admission(wait=self._seal(proved.keys, body)))

    def direct(self, proved: ProvedMember, room: ring_pb2.SessionRoom) -> AdmissionAnswer:
        """The session is in another room, whose host takes it back."""
        return AdmissionAnswer(proved.mailbox, ring_pb2.Admission(moved_to=self._seal(proved.keys, room)))

    def refuse(self, proved: ProvedMember, error: KafilaError) -> AdmissionAnswer:
        """In words for its owner. By PERMISSION_DENIED and NOT_FOUND, with the log, it knows that it can't ever come
        back."""
        body = ring_pb2.RefusedBody(refusal=ring_pb2.Refusal(code=error.code, sentence=str(error)))
        if isinstance(error, Denied | NotFound):
            body.log.extend(self._log().until_gone(proved.member))
            body.signature = self._identity.sign(REFUSAL, proved.keys.transcript)
        return AdmissionAnswer(proved.mailbox, ring_pb2.Admission(refused=self._seal(proved.keys, body)))

    def check_versions(self, proved: ProvedMember) -> None:
        """Raises Refused when the two can't work together any more."""
        check_versions(session=self._versions, newcomer=told_by(proved.body))

    def _challenge(self, mailbox: int, knock: ring_pb2.Knock, now: float) -> AdmissionAnswer | None:
        log = self._log()
        callers = (*log.known, *log.strays)
        member = next((one for one in callers if fits(knock.token, log.session, one, knock.ephemeral)), None)
        self._knocks.pop(mailbox, None)
        if member is None or member.fingerprint == self._identity.fingerprint or len(self._knocks) >= MOST_KNOCKS:
            return None
        ephemeral = draw_ephemeral(self._entropy)
        keys = answerers_keys(log.session, member, ephemeral=ephemeral, theirs=knock.ephemeral)
        self._knocks[mailbox] = _Knock(member, keys, now + KNOCK_TTL_S)
        signature = self._identity.sign(CHALLENGE, keys.transcript)
        body = ring_pb2.ChallengeBody(log_length=len(log), log_head=log.head, name=self._name, signature=signature)
        challenge = ring_pb2.Challenge(ephemeral=public_of(ephemeral), sealed=self._seal(keys, body))
        return AdmissionAnswer(mailbox, ring_pb2.Admission(challenge=challenge))

    def _proved(self, mailbox: int, sealed: ring_pb2.Sealed) -> ProvedMember | None:
        knock = self._knocks.pop(mailbox, None)
        if knock is None:
            return None
        try:
            plain = Sealer(knock.keys.returner_seal, RETURNER_CONTEXT, self._entropy).open(sealed)
            body = ring_pb2.ProofBody.FromString(plain)
            key = public_key_of(knock.member.certificate)
            verify(key, PROOF, knock.keys.transcript, body.signature)
        except (KafilaError, DecodeError):
            return None
        return ProvedMember(mailbox, knock.member, body, knock.keys)

    def _seal(self, keys: ExchangeKeys, body: Message) -> ring_pb2.Sealed:
        return Sealer(keys.answerer_seal, ANSWERER_CONTEXT, self._entropy).seal(body.SerializeToString())
