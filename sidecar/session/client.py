"""Founding a session and joining one: from a rendezvous or a code to a `Channel`."""

import asyncio
import os
import secrets
from pathlib import Path

from google.protobuf.message import DecodeError
from kafila_proto import ring_pb2

from sidecar.errors import Denied, InvalidInput, TimedOut, Unavailable
from sidecar.session import names
from sidecar.session.address import Address
from sidecar.session.admission import Desk, MayAdmit, Versions
from sidecar.session.channel import Channel
from sidecar.session.circle import Circle
from sidecar.session.code import Code, draw_words
from sidecar.session.guesses import FileGuesses
from sidecar.session.identity import make_identity, save_identity
from sidecar.session.log import SESSION_BYTES, Member, found_log, replay
from sidecar.session.newcomer import Newcomer
from sidecar.session.pake import Guesses
from sidecar.session.postbox import Postbox, enter_room, open_room
from sidecar.session.seal import KEY_BYTES

ANSWER_DEADLINE_S = 10.0  # for each answer of the admitter's


async def found(
    *,
    rendezvous: Address,
    terms: ring_pb2.SessionTerms,
    name: str,
    folder: Path,
    version: str,
    mlx_lm_version: str,
    may_admit: MayAdmit,
) -> Channel:
    """Opens a room and becomes the session's host and admitter; `Channel.code` is what people pass on.

    `folder` keeps this member's identity and the count of guesses. `may_admit` says why nobody may join now, or None.
    Raises Unavailable when the rendezvous does not answer within 5 s, or what it refuses with.
    """
    postbox = await open_room(rendezvous)
    code = Code(room=postbox.place.room, words=draw_words(), address=rendezvous)
    identity = make_identity()
    save_identity(identity, folder)
    log = found_log(
        identity,
        session=secrets.token_bytes(SESSION_BYTES),
        terms=terms,
        name=names.fit(name, ()),
        mailbox=postbox.place.mailbox,
    )
    key = secrets.token_bytes(KEY_BYTES)
    circle = Circle(identity=identity, self_name=log.host, log=log, key=key, entropy=os.urandom)
    desk = Desk(
        code=code,
        guesses=Guesses(FileGuesses(folder)),
        versions=Versions(version, mlx_lm_version),
        offer=lambda: _offer(circle),
        may_admit=may_admit,
        entropy=os.urandom,
    )
    return Channel(postbox=postbox, circle=circle, code=code, desk=desk)


async def approach(*, code: Code, name: str) -> "Approach":
    """Proves a code to the session's admitter and learns the session's terms; nothing is joined yet.

    Raises InvalidInput for a code without an address, NotFound when there is no such session, Denied for wrong words,
    Refused when the session takes nobody now, Unavailable when rendezvous or host don't answer.
    """
    if code.address is None:
        raise InvalidInput("the code names no rendezvous, and none is configured: set KAFILA_RENDEZVOUS=host:port")
    postbox = await enter_room(code.address, code.room)
    newcomer = Newcomer(code, os.urandom)
    try:
        if postbox.place.admitter not in postbox.attending:
            raise Unavailable("the session's host is not connected to the rendezvous at present: try again later")
        await _exchange(postbox, newcomer, newcomer.start(), until="offered")
    except BaseException:
        await postbox.aclose()
        raise
    return Approach(postbox, newcomer, name)


class Approach:
    """A proved code: what the session is, before this machine takes part in it."""

    def __init__(self, postbox: Postbox, newcomer: Newcomer, name: str) -> None:
        self._postbox = postbox
        self._newcomer = newcomer
        self._name = name
        self.session = newcomer.offer.session
        self.terms = newcomer.offer.terms
        self.host = newcomer.offer.host
        self.members_present = newcomer.offer.members_present

    async def enrol(self, *, version: str, mlx_lm_version: str, folder: Path) -> Channel:
        """Joins; `folder` keeps this member's identity. Raises as `approach` does; after an error it is abandoned."""
        identity = make_identity()
        body = ring_pb2.EnrolBody(
            name=self._name, certificate=identity.der, version=version, mlx_lm_version=mlx_lm_version
        )
        try:
            save_identity(identity, folder)
            await _exchange(self._postbox, self._newcomer, self._newcomer.enrol(body), until="admitted")
            admitted = self._newcomer.admitted
            log = replay(self.session, admitted.log)
            _check_own_entry(log.member(admitted.name), identity.fingerprint)
        except BaseException:
            await self.abandon()
            raise
        circle = Circle(identity=identity, self_name=admitted.name, log=log, key=admitted.key, entropy=os.urandom)
        return Channel(postbox=self._postbox, circle=circle)

    async def abandon(self) -> None:
        """Gives the offer up."""
        await self._postbox.aclose()


async def _exchange(postbox: Postbox, newcomer: Newcomer, first: ring_pb2.Admission, *, until: str) -> None:
    """Sends a step and answers the admitter's until the newcomer's state is `until`."""
    step: ring_pb2.Admission | None = first
    try:
        while newcomer.state != until:
            if step is not None:
                parcel = ring_pb2.Parcel(admission=step)
                await postbox.post([postbox.place.admitter], parcel.SerializeToString())
            async with asyncio.timeout(ANSWER_DEADLINE_S):
                answer = await _answer(postbox)
            step = newcomer.receive(answer)
    except TimeoutError as error:
        raise TimedOut(f"the session's host did not answer within {ANSWER_DEADLINE_S:.0f} s: try again") from error


async def _answer(postbox: Postbox) -> ring_pb2.Admission:
    """The admitter's next step; raises Unavailable when it goes."""
    admitter = postbox.place.admitter
    while True:
        event = await postbox.next()
        if event.departed == admitter:
            raise Unavailable("the session's host lost its connection to the rendezvous: try again later")
        if event.mail.sender == admitter:
            try:
                parcel = ring_pb2.Parcel.FromString(event.mail.body)
            except DecodeError as error:
                raise InvalidInput("the session's host sent mail that can't be read") from error
            if parcel.HasField("admission"):
                return parcel.admission


def _check_own_entry(member: Member | None, fingerprint: bytes) -> None:
    if member is None or member.fingerprint != fingerprint:
        raise Denied("the session's log admits somebody else in this machine's place")


def _offer(circle: Circle) -> ring_pb2.OfferBody:
    log = circle.log
    return ring_pb2.OfferBody(session=log.session, terms=log.terms, host=log.host, members_present=len(log.members))
