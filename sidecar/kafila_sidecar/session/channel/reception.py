"""Where newcomers knock: the code that is valid now, who gets in by it, and why nobody does. No I/O."""

import logging
import os
from collections.abc import Callable

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, KafilaError, NotFound, Refused, Unavailable
from kafila_sidecar.session.admission.doorstep import STEPS, Doorstep, ProvedMember, never_back
from kafila_sidecar.session.admission.host import AdmissionAnswer, Enrol, HostAdmission
from kafila_sidecar.session.admission.pake import Guesses, GuessStore
from kafila_sidecar.session.admission.proving import fits
from kafila_sidecar.session.admission.returns import Returns
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.channel.events import Knocked
from kafila_sidecar.session.channel.presence import Presence
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.channel.upkeep import Acts, Upkeep
from kafila_sidecar.session.channel.whereabouts import Whereabouts
from kafila_sidecar.session.membership.members import LARGEST_SESSION
from kafila_sidecar.session.rendezvous.code import Code, draw_words

logger = logging.getLogger(__name__)


class Reception:
    """One member's, which is open while the member is the host. `answer` mails a newcomer."""

    def __init__(
        self,
        *,
        replica: Replica,
        upkeep: Upkeep,
        place: Code,
        guesses: GuessStore,
        versions: Versions,
        answer: Callable[[AdmissionAnswer], None],
        where: Whereabouts,
        presence: Presence,
    ) -> None:
        """`place`: the room and its address, and the words of a host that comes back."""
        self._replica = replica
        self._upkeep = upkeep
        self._code = place
        self._guesses = guesses
        self._versions = versions
        self._answer = answer
        self._where = where
        self._presence = presence
        self._admits = True
        self._returns = Returns()
        self._is_alone = False
        self._admission: HostAdmission | None = None
        self._doorstep = Doorstep(
            log=lambda: replica.log,
            name=replica.self_name,
            identity=replica.identity,
            versions=versions,
            entropy=os.urandom,
        )
        if replica.is_host:
            self.open()

    def open(self) -> None:
        """This member is the host from now on, and has a code of its own; a host that came back has the one it had."""
        guesses = self._counted()
        if not self._code.words:
            self._code = self._code.renewed(draw_words())
        self._admission = HostAdmission(
            code=self._code,
            guesses=guesses,
            versions=self._versions,
            offer=self._offer,
            may_admit=self._may_admit,
            entropy=os.urandom,
        )

    def _counted(self) -> Guesses:
        """How often the code was guessed. Where that is not known any more, nobody gets in by that code: there is a new
        one. Raises Refused when the count can't be written either."""
        try:
            return Guesses(self._guesses)
        except Refused as error:
            logger.warning("%s: there is a new code", error)
            self._guesses.save(0)
            self._code = self._code.renewed(())
            return Guesses(self._guesses)

    @property
    def code(self) -> Code | None:
        """By which newcomers join now; the host's only."""
        return self._code if self._admission else None

    @property
    def state(self) -> str:
        """ "open", "locked", or on the host "paused": the code was guessed too often."""
        if self._replica.log.now.locked:
            return "locked"
        return "paused" if self._admission and self._admission.is_paused else "open"

    def new_code(self) -> Code:
        """Fresh words in the same room; the old ones, and what they opened, are good for nothing.

        Raises Refused unless this member is the host.
        """
        if self._admission is None:
            raise Refused(f"only the host, {self._replica.log.host}, can give this session a new code")
        self._code = self._code.renewed(draw_words())
        for answer in self._admission.renew(self._code):
            self._answer(answer)
        return self._code

    def move(self, place: Code) -> None:
        """The room is another one; whoever was at the door of the old one has gone with it."""
        self._code = place
        if self._admission is not None:
            self._code = place.renewed(draw_words())
            self._admission.renew(self._code)

    def end(self) -> None:
        """The session is over here: nobody joins it through this member any more."""
        self._admits = False

    def stand_still(self, is_alone: bool) -> None:
        """While the host hears too few members, whom it admits the others may never know."""
        self._is_alone = is_alone

    def departed(self, mailbox: int) -> None:
        """A newcomer's stream ended."""
        self._doorstep.departed(mailbox)
        if self._admission:
            self._admission.departed(mailbox)

    def receive(self, mailbox: int, step: ring_pb2.Admission, now: float) -> Acts:
        """Takes a newcomer's step and answers it; what follows when that admitted it."""
        if self._admission is not None and step.WhichOneof("step") in STEPS:
            return self._knocked(self._doorstep.receive(mailbox, step, now), now)
        if self._admission is None and step.HasField("knock"):
            return self._knocked_elsewhere(step.knock)
        if self._admission is None or mailbox in {one.mailbox for one in self._where.settled(self._replica.members)}:
            return Acts()
        outcome = self._admission.receive(mailbox, step, now)
        if isinstance(outcome, Enrol):
            return self._admit(self._admission, outcome)
        self._answer(outcome)
        return Acts()

    def take_back(self, proved: ProvedMember, now: float) -> Acts:
        """A member that proved itself is one again, or hears why not. A session is locked to newcomers only. A host
        that hears from it that the others went on without this one is none any more, and takes nobody back."""
        member, log = proved.member, self._replica.log
        learnt = self._replica.learn(proved.body.entries, by=member)
        if not self._replica.is_host:
            return Acts(events=learnt)
        try:
            self._check_may_return(proved)
            if proved.body.leaves:
                return self._let_go(proved)
            self._returns.check(member, now)
            acts = self._upkeep.take_back(member, proved.mailbox)
        except KafilaError as error:
            self._answer(self._doorstep.refuse(proved, error))
            return Acts()
        self._returns.note(member, now)
        self._answer(self._doorstep.welcome(proved, name=member.name, key=self._replica.keys.key, log=log))
        return acts

    def _let_go(self, proved: ProvedMember) -> Acts:
        """It came to say goodbye. Who was lost already is a member no more, and just does not come back."""
        member = self._replica.log.member(proved.member.name)
        is_in = member is not None and member.fingerprint == proved.member.fingerprint
        acts = self._upkeep.remove(proved.member.name, "left") if is_in else Acts()
        self._answer(self._doorstep.refuse(proved, Denied(f"{proved.member.name} has left this session")))
        return acts

    def _knocked(self, outcome: AdmissionAnswer | ProvedMember | None, now: float) -> Acts:
        match outcome:
            case ProvedMember():
                return self.take_back(outcome, now)
            case AdmissionAnswer():
                self._answer(outcome)
        return Acts()

    def _knocked_elsewhere(self, knock: ring_pb2.Knock) -> Acts:
        """Only the host takes anybody back. Who is no longer in the session is worth knowing for who misses the host;
        nothing proves it, so that nobody else may go by it."""
        session, others = self._replica.log.session, self._replica.others
        return Acts(events=[Knocked(one.name) for one in others if fits(knock.token, session, one, knock.ephemeral)])

    def _check_may_return(self, proved: ProvedMember) -> None:
        log, member = self._replica.log, proved.member
        if not self._admits:
            raise NotFound("this session is over")
        if self._is_alone and log.member(member.name) is None:
            raise self._hears_too_few()
        if not log.may_return(member):
            raise never_back(log, member)
        self._doorstep.check_versions(proved)
        if log.member(member.name) is None and len(log.members) >= (log.terms.members_wanted or LARGEST_SESSION):
            raise Refused(f"this session is full: all {len(log.members)} members are in, and {member.name} was away")

    def _admit(self, admission: HostAdmission, enrol: Enrol) -> Acts:
        try:
            body, acts = self._upkeep.admit(enrol.body, enrol.mailbox)
        except KafilaError as error:
            self._answer(admission.refuse(enrol.mailbox, error))
            return Acts()
        self._answer(admission.admit(enrol.mailbox, body))
        return acts

    def _may_admit(self) -> KafilaError | None:
        """Why nobody may join now, if so."""
        log = self._replica.log
        if log.now.locked:
            return Refused(f"this session is locked: ask its host, {log.host}, to unlock it")
        if not self._admits:
            return Refused("this session is closed: ask for a new code")
        if self._is_alone:
            return self._hears_too_few()
        if len(log.members) >= (log.terms.members_wanted or LARGEST_SESSION):
            if self._presence.somebody_is_away:
                return Unavailable("this session is full, but for a member that may be gone: try again in a moment")
            return Refused(f"this session is full: all {len(log.members)} members are in")
        return None

    def _hears_too_few(self) -> Unavailable:
        return Unavailable(f"{self._replica.self_name}, the host, hears too few of the members now: try again later")

    def _offer(self) -> ring_pb2.OfferBody:
        log = self._replica.log
        address = self._code.address
        return ring_pb2.OfferBody(
            session=log.session,
            terms=log.terms,
            host=log.host,
            members_present=len(log.members),
            rendezvous_fingerprint=(address.fingerprint or "") if address else "",
        )
