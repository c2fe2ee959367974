"""The returning member's side of coming back: one knock at one mailbox. No I/O, no clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput, KafilaError, Refused, from_code
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
    draw_ephemeral,
    public_of,
    returners_keys,
    token,
)
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.membership.history import check_goes_on
from kafila_sidecar.session.membership.identity import Identity, public_key_of, verify
from kafila_sidecar.session.membership.log import Log, replay
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.membership.seal import KEY_BYTES, Sealer

Body = TypeVar("Body", bound=Message)
VoteFor = Callable[[str], bytes]
"""A vote for who answers, where this member misses the host and holds the other one to be its heir; else empty."""

# (state, step that came) -> next state. Any other pair is refused.
KNOCKER = {
    ("knocked", "challenge"): "proved",
    ("proved", "welcome"): "welcomed",
    ("proved", "wait"): "waits",
    ("proved", "moved_to"): "directed",
    ("proved", "refused"): "refused",
}


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The host took this member back: its log as it is now, and the session's key."""

    name: str
    log: Log
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class AlsoWaits:
    """This member comes back too, and answers no differently before the host is there."""

    name: str


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """Somebody's word, in its own sentence; `for_good`: the host's, or the log says it."""

    error: KafilaError
    for_good: bool


@dataclass(frozen=True, slots=True)
class MovedTo:
    """The session's room is this one now, somebody says who knows its members."""

    address: str
    room: int


KnockOutcome = ring_pb2.Admission | Welcomed | AlsoWaits | MovedTo | TurnedAway


class Knocker:
    """`log` is this member's own, which is not changed."""

    def __init__(
        self,
        *,
        log: Log,
        identity: Identity,
        versions: Versions,
        entropy: Entropy,
        vote_for: VoteFor,
        leaves: bool = False,
    ) -> None:
        """`leaves`: this is its goodbye."""
        self.state = "knocked"
        self._log = log
        self._identity = identity
        self._versions = versions
        self._entropy = entropy
        self._vote_for = vote_for
        self._leaves = leaves
        self._ephemeral = draw_ephemeral(entropy)
        self._answerer: Member | None = None
        self._keys: ExchangeKeys | None = None

    @property
    def knows_answerer(self) -> bool:
        """Whether it signed as a member by this one's log."""
        return self._answerer is not None

    def knock(self) -> ring_pb2.Admission:
        """The first step."""
        ephemeral = public_of(self._ephemeral)
        said = token(self._log.session, self._identity.fingerprint, ephemeral)
        return ring_pb2.Admission(knock=ring_pb2.Knock(ephemeral=ephemeral, token=said))

    def receive(self, admission: ring_pb2.Admission) -> KnockOutcome:
        """Takes the other side's step. Raises InvalidInput or Denied for what is none."""
        step = admission.WhichOneof("step") or "nothing"
        if (self.state, step) not in KNOCKER:
            raise InvalidInput(f"{step} does not belong to the state {self.state} of coming back")
        match step:
            case "challenge":
                outcome: KnockOutcome = self._prove(admission.challenge)
            case "welcome":
                outcome = self._welcomed(self._open(ring_pb2.WelcomeBody(), admission.welcome))
            case "wait":
                outcome = self._waits(self._open(ring_pb2.WaitBody(), admission.wait))
            case "moved_to":
                room = self._open(ring_pb2.SessionRoom(), admission.moved_to)
                outcome = MovedTo(room.address, room.room)
            case _:
                outcome = self._refused(self._open(ring_pb2.RefusedBody(), admission.refused))
        self.state = KNOCKER[self.state, step]
        return outcome

    def _prove(self, challenge: ring_pb2.Challenge) -> ring_pb2.Admission:
        identity, log = self._identity, self._log
        self._keys = returners_keys(
            log.session,
            identity.fingerprint,
            own=identity.agreement_key,
            ephemeral=self._ephemeral,
            theirs=challenge.ephemeral,
        )
        said = self._open(ring_pb2.ChallengeBody(), challenge.sealed)
        self._answerer = self._named(said)
        is_member = self._answerer is not None  # only members get votes
        is_one_of_us = is_member or self._is_lost(said)  # and only they learn what is known here
        goes_on = said.log_length <= len(log) and log.head_at(said.log_length) == said.log_head
        versions = self._versions
        body = ring_pb2.ProofBody(
            signature=identity.sign(PROOF, self._keys.transcript),
            version=versions.kafila,
            planner=versions.planner,
            mlx_lm_version=versions.mlx_lm,
            protocol=versions.protocols.newest,
            oldest_protocol=versions.protocols.oldest,
            entries=self._unknown_to(said, goes_on) if is_one_of_us else (),
            vote=self._vote_for(said.name) if is_member and goes_on else b"",
            leaves=self._leaves,
        )
        sealer = Sealer(self._keys.returner_seal, RETURNER_CONTEXT, self._entropy)
        return ring_pb2.Admission(proof=sealer.seal(body.SerializeToString()))

    def _unknown_to(self, said: ring_pb2.ChallengeBody, goes_on: bool) -> Sequence[ring_pb2.SignedEntry]:
        """What the other log lacks, if this one goes on from it. If not, whom this member let in as the host may be
        unknown there."""
        log = self._log
        return log.entries[said.log_length :] if goes_on else log.let_in_by(self._identity.fingerprint)

    def _named(self, said: ring_pb2.ChallengeBody) -> Member | None:
        """Who answers; None for who is no member as far as is known here. Raises Denied for another one's name."""
        member = self._log.member(said.name)
        if member is not None:
            verify(public_key_of(member.certificate), CHALLENGE, self._transcript, said.signature)
        return member

    def _is_lost(self, said: ring_pb2.ChallengeBody) -> bool:
        """Whether who answers was lost, as far as is known here, and may not know it. Raises Denied for another one's
        name."""
        former = self._log.former(said.name)
        if former is None or not self._log.may_return(former.member):
            return False
        verify(public_key_of(former.member.certificate), CHALLENGE, self._transcript, said.signature)
        return True

    def _refused(self, body: ring_pb2.RefusedBody) -> TurnedAway:
        """Whoever knows this member's keys can say that it is out; it believes the log, or the host by the log."""
        error = from_code(body.refusal.code, body.refusal.sentence)
        if not body.log:
            return TurnedAway(Refused(str(error)), for_good=False)
        log = replay(self._log.session, body.log)
        check_goes_on(self._log, log, self._identity)
        if log.is_out(self._identity.fingerprint) or self._is_host_out(log):
            return TurnedAway(Denied(str(error)), for_good=True)
        verify(public_key_of(log.now.host_member.certificate), REFUSAL, self._transcript, body.signature)
        return TurnedAway(error, for_good=True)

    def _is_host_out(self, shown: Log) -> bool:
        """Whether it is unknown there that this machine was let in, and the host who did that is out."""
        own = next(one for one in self._log.known if one.fingerprint == self._identity.fingerprint)
        if any(one.fingerprint == own.fingerprint for one in shown.known):
            return False
        return shown.is_out(self._log.before(own.first_index).host_member.fingerprint)

    def _welcomed(self, body: ring_pb2.WelcomeBody) -> Welcomed:
        log = replay(self._log.session, body.log)
        verify(public_key_of(log.now.host_member.certificate), WELCOME, self._transcript, body.signature)
        own = log.member(body.name)
        if own is None or own.fingerprint != self._identity.fingerprint:
            raise Denied("the session's log has somebody else in this machine's place")
        if len(body.key) != KEY_BYTES:
            raise InvalidInput(f"a session's key has {len(body.key)} bytes, not {KEY_BYTES}")
        check_goes_on(self._log, log, self._identity)
        return Welcomed(body.name, log, body.key)

    def _waits(self, body: ring_pb2.WaitBody) -> AlsoWaits:
        """Raises Denied for who is not known here: it joined later than this member knows."""
        if self._answerer is None:
            raise Denied("somebody comes back who is no member yet, as far as is known here")
        verify(public_key_of(self._answerer.certificate), WAIT, self._transcript, body.signature)
        return AlsoWaits(self._answerer.name)

    @property
    def _transcript(self) -> bytes:
        assert self._keys is not None
        return self._keys.transcript

    def _open(self, body: Body, sealed: ring_pb2.Sealed) -> Body:
        assert self._keys is not None
        plain = Sealer(self._keys.answerer_seal, ANSWERER_CONTEXT, self._entropy).open(sealed)
        try:
            body.MergeFromString(plain)
        except DecodeError as error:
            raise InvalidInput("what came for a member that comes back can't be read") from error
        return body
