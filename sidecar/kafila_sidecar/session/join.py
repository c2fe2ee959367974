"""Founding a session and joining one: from a rendezvous or a code to a `Channel`."""

import asyncio
import os
import secrets

from google.protobuf.message import DecodeError

from kafila_proto import rendezvous_pb2, ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput, NotFound, TimedOut, Unavailable
from kafila_sidecar.session.admission.newcomer import HostBusy, Newcomer
from kafila_sidecar.session.admission.versions import check_versions, told_by
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.membership import names
from kafila_sidecar.session.membership.entries import found_log
from kafila_sidecar.session.membership.identity import Identity, make_identity
from kafila_sidecar.session.membership.log import SESSION_BYTES, replay
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.membership.seal import KEY_BYTES
from kafila_sidecar.session.opening import Local, open_channel
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.session.rendezvous.mailbox import Mailbox, enter_room, open_room


async def found(*, rendezvous: RendezvousAddress, terms: ring_pb2.SessionTerms, name: str, local: Local) -> Channel:
    """Opens a room and becomes the session's host; `Channel.code` is what people pass on.

    Raises Unavailable when the rendezvous does not answer within 5 s, or what it refuses with.
    """
    mailbox = await open_room(rendezvous)
    identity = make_identity()
    log = found_log(
        identity,
        session=secrets.token_bytes(SESSION_BYTES),
        terms=terms,
        name=names.fit(name, ()),
        mailbox=mailbox.place.mailbox,
    )
    key = secrets.token_bytes(KEY_BYTES)
    replica = Replica(identity=identity, self_name=log.host, log=log, key=key, entropy=os.urandom)
    return open_channel(mailbox, replica, local)


async def approach(*, code: Code, name: str, local: Local, is_hearsay: bool = False) -> "Approach":
    """Proves a code to the session's host and learns the session's terms; nothing is joined yet.

    `is_hearsay`: where the code's rendezvous is, anybody may have said; the host has to say that it has the same.

    Raises InvalidInput for a code without an address, NotFound when there is no such session, Denied for wrong words,
    Refused when the session takes nobody now or runs other versions, Unavailable when rendezvous or host don't answer.
    """
    if code.address is None:
        raise InvalidInput(
            "the code names no rendezvous, and none is configured: ask for the whole code, or say where with "
            "`ollama session rendezvous set ADDRESS` or KAFILA_RENDEZVOUS"
        )
    mailbox = await enter_room(code.address, code.room)
    try:
        host = HostMailbox(mailbox, local.deadlines.answer_s)
        newcomer = await _proved(host, code, local)
        if is_hearsay:
            _check_hearsay(newcomer.offer.rendezvous_fingerprint, code.address)
        check_versions(session=told_by(newcomer.offer), newcomer=local.versions)
    except BaseException:
        await mailbox.aclose()
        raise
    return Approach(host, newcomer, name, local)


class Approach:
    """A proved code: what the session is, before this machine takes part in it."""

    def __init__(self, host: "HostMailbox", newcomer: Newcomer, name: str, local: Local) -> None:
        self._host_mailbox = host
        self._newcomer = newcomer
        self._name = name
        self._local = local
        self.session = newcomer.offer.session
        self.terms = newcomer.offer.terms
        self.host = newcomer.offer.host
        self.members_present = newcomer.offer.members_present

    async def enrol(self) -> Channel:
        """Joins. Raises as `approach` does; after an error it is abandoned."""
        identity, versions = make_identity(), self._local.versions
        body = ring_pb2.EnrolBody(
            name=self._name,
            certificate=identity.der,
            agreement=identity.agreement,
            version=versions.kafila,
            planner=versions.planner,
            mlx_lm_version=versions.mlx_lm,
            protocol=versions.protocols.newest,
            oldest_protocol=versions.protocols.oldest,
        )
        try:
            await self._host_mailbox.exchange(self._newcomer, self._newcomer.enrol(body), until="admitted")
            admitted = self._newcomer.admitted
            log = replay(self.session, admitted.log)
            _check_own_entry(log.member(admitted.name), identity)
            if log.terms != self.terms:
                raise Denied("the session was founded on other terms than its host offered")
            replica = Replica(identity=identity, self_name=admitted.name, log=log, key=admitted.key, entropy=os.urandom)
        except BaseException:
            await self.abandon()
            raise
        return open_channel(self._host_mailbox.mailbox, replica, self._local)

    async def abandon(self) -> None:
        """Gives the offer up."""
        await self._host_mailbox.mailbox.aclose()


class HostMailbox:
    """Whoever answers newcomers in a room, as a newcomer finds it: the host, or its successor."""

    def __init__(self, mailbox: Mailbox, answer_s: float) -> None:
        """`answer_s`: how long each of its answers is waited for."""
        self.mailbox = mailbox
        self._answer_s = answer_s
        self._answering: int | None = None  # known once somebody answered

    async def exchange(self, newcomer: Newcomer, first: ring_pb2.Admission, *, until: str) -> None:
        """Sends a step and answers the host's until the newcomer's state is `until`."""
        step: ring_pb2.Admission | None = first
        try:
            while newcomer.state != until:
                asked = self._asked()
                if step is not None:
                    await self.mailbox.post(asked, ring_pb2.Parcel(admission=step).SerializeToString())
                async with asyncio.timeout(self._answer_s):
                    answer = await self._answer(asked)
                step = newcomer.receive(answer)
        except TimeoutError as error:
            raise TimedOut(f"the session's host did not answer within {self._answer_s:.0f} s: try again") from error

    def _asked(self) -> list[int]:
        """Whom to ask: the room's first mailbox while it is attended, else everybody, since a successor may answer.

        One start goes to all and one answer is taken, so that however many there are, they get one guess.
        """
        if self._answering is not None:
            return [self._answering]
        attending = self.mailbox.attending
        first = self.mailbox.place.host
        asked = [first] if first in attending else sorted(attending)
        if not asked:
            raise Unavailable("the session's host is not connected to the rendezvous at present: try again later")
        return asked

    async def _answer(self, asked: list[int]) -> ring_pb2.Admission:
        """The host's next step; raises Unavailable when it goes."""
        while True:
            event = await self.mailbox.next()
            if [event.departed] == asked:
                raise Unavailable("the session's host lost its connection to the rendezvous: try again later")
            admission = _admission(event) if event.mail.sender in asked else None
            if admission is not None:
                self._answering = event.mail.sender
                return admission
            self.mailbox.put_off(event)


async def _proved(host: HostMailbox, code: Code, local: Local) -> Newcomer:
    """As `_prove`. NotFound means that no words were tried, so that they may be tried elsewhere: from here on whoever
    holds the rendezvous had its guess."""
    try:
        return await _prove(host, code, local)
    except NotFound as error:
        raise Unavailable("the session ended while this machine was joining: ask for the code again") from error


async def _prove(host: HostMailbox, code: Code, local: Local) -> Newcomer:
    """A newcomer that holds the offer; asks again for a while when the host is busy."""
    loop = asyncio.get_running_loop()
    until = loop.time() + local.deadlines.busy_s
    while True:
        newcomer = Newcomer(code, os.urandom, local.versions.protocols)
        try:
            await host.exchange(newcomer, newcomer.start(), until="offered")
        except HostBusy:
            if loop.time() >= until:
                raise
            await asyncio.sleep(local.deadlines.busy_pause_s)
        else:
            return newcomer


def _check_hearsay(hosts: str, heard: RendezvousAddress) -> None:
    """The host said it sealed with what both know of the words, so nobody in between could change it."""
    if not heard.fingerprint or hosts != heard.fingerprint:
        raise Denied(
            "somebody on this network answered in place of the host's rendezvous: ask for the whole code, with @ and an"
            " address"
        )


def _admission(event: rendezvous_pb2.Event) -> ring_pb2.Admission | None:
    try:
        parcel = ring_pb2.Parcel.FromString(event.mail.body)
    except DecodeError as error:
        raise InvalidInput("the session's host sent mail that can't be read") from error
    return parcel.admission if parcel.HasField("admission") else None


def _check_own_entry(member: Member | None, identity: Identity) -> None:
    if member is None or (member.fingerprint, member.agreement) != (identity.fingerprint, identity.agreement):
        raise Denied("the session's log admits somebody else in this machine's place")
