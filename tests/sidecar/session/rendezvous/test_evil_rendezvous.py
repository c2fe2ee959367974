"""Who holds the rendezvous can refuse service. It learns nothing, joins nothing, stands in no middle."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from random import Random

import pytest

from kafila_proto import rendezvous_pb2 as pb
from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, KafilaError, Unavailable
from kafila_sidecar.session.admission.host import MOST_GUESSES
from kafila_sidecar.session.admission.newcomer import Newcomer
from kafila_sidecar.session.admission.pake import Guesses, HostPake
from kafila_sidecar.session.channel.events import MemberDeparted, MemberJoined, MessageFrom
from kafila_sidecar.session.channel.upkeep import Acts
from kafila_sidecar.session.channel.waiting import MOST_BYTES, MOST_MESSAGES
from kafila_sidecar.session.membership.identity import make_identity
from kafila_sidecar.session.opening import JoinDeadlines
from kafila_sidecar.session.rendezvous.code import Code, draw_words
from kafila_sidecar.session.rendezvous.mailbox import MOST_ATTENDING
from tests.sidecar.session.channel_world import ChannelPerson, Company, knock
from tests.sidecar.session.rendezvous.evil_rendezvous import EvilMail, EvilRendezvous, evil_rendezvous
from tests.sidecar.session.trust_world import MemoryStore, go


@pytest.fixture
async def company(tmp_path: Path) -> AsyncIterator[Company]:
    company = Company(tmp_path)
    yield company
    await company.end()


def names(person: ChannelPerson) -> list[str]:
    return [member.name for member in person.channel.members]


def code_of(person: ChannelPerson) -> Code:
    assert person.channel.code is not None
    return person.channel.code


def admission(step: ring_pb2.Admission) -> bytes:
    return ring_pb2.Parcel(admission=step).SerializeToString()


async def settled() -> None:
    """Whatever was delivered has been handled, and what followed from it."""
    await asyncio.sleep(0.2)


async def trio(company: Company, evil: EvilRendezvous, host: ChannelPerson) -> tuple[ChannelPerson, ChannelPerson]:
    anna = await company.join(host.channel.code, "anna")
    ben = await company.join(host.channel.code, "ben")
    await anna.hear(MemberJoined)
    return anna, ben


async def test_mail_when_it_is_repeated_and_reordered_then_each_message_is_told_once(company: Company) -> None:
    chance, held = Random(5), list[EvilMail]()

    def shuffle(mail: EvilMail) -> Iterable[EvilMail]:
        """Holds mail back, and delivers some of all there ever was, in any order."""
        if mail.step != "envelope":
            return [mail]
        held.append(mail)
        return [chance.choice(held) for _ in range(4)]

    async with evil_rendezvous() as (evil, address):
        host = await company.host(address)
        anna, ben = await trio(company, evil, host)
        evil.meddle = shuffle
        for epoch in range(30):
            await anna.channel.send(go(epoch))
        evil.meddle = lambda mail: [mail, mail]
        await anna.channel.send(go(99))
        for person in (host, ben):
            await person.hear(MessageFrom, lambda event: event.control.epoch == 99)
        for mail in (*held, *held):
            evil.deliver(mail)
        await settled()
        for person in (host, ben):
            epochs = [event.control.epoch for event in person.heard if isinstance(event, MessageFrom)]
            assert len(epochs) == len(set(epochs)) == 30
            assert names(person) == ["host", "anna", "ben"]
        await company.end()


async def test_admission_when_it_is_replayed_from_other_mailboxes_then_nobody_joins(company: Company) -> None:
    async with evil_rendezvous() as (evil, address):
        host = await company.host(address)
        await company.join(host.channel.code, "anna")
        recorded = [mail for mail in evil.seen if mail.to == 1 and mail.step != "envelope"]
        assert [mail.step for mail in recorded] == ["start", "confirm", "enrol"]
        for _ in range(3):
            mailbox = evil.open_mailbox()
            for mail in (*recorded, *reversed(recorded)):
                evil.deliver(EvilMail(mailbox, 1, mail.body))
                await settled()
        for mail in recorded:
            evil.deliver(mail)
        await settled()
        assert names(host) == ["host", "anna"]
        await company.end()


@pytest.mark.parametrize("step", ["start", "reply", "confirm", "offer", "enrol", "admitted"])
async def test_admission_when_a_step_is_altered_then_nobody_joins(company: Company, step: str) -> None:
    def alter(mail: EvilMail) -> Iterable[EvilMail]:
        if mail.step != step:
            return [mail]
        return [mail.changed(mail.body[:-1] + bytes([mail.body[-1] ^ 1]))]

    async with evil_rendezvous() as (evil, address):
        host = await company.host(address)
        evil.meddle = alter
        with pytest.raises(KafilaError):
            await company.join(host.channel.code, "anna", deadlines=JoinDeadlines(answer_s=0.5, busy_s=0.0))
        # The last answer is on its way when the host has admitted; a member that can't know of it is soon missed.
        assert names(host) == (["host"] if step != "admitted" else ["host", "anna"])
        await company.end()


@pytest.mark.parametrize("step", ["start", "confirm"])
async def test_newcomer_when_the_room_is_said_to_be_gone_once_words_were_tried_then_it_is_not_sought_elsewhere(
    company: Company, step: str
) -> None:
    """NotFound leads on to whoever answers on this network, who would get a second guess."""
    async with evil_rendezvous() as (evil, address):
        host = await company.host(address)
        evil.lost_at = step
        with pytest.raises(Unavailable, match="ended while this machine was joining"):
            await company.join(host.channel.code, "anna")
        await company.end()


async def test_newcomer_when_the_rendezvous_plays_the_host_then_it_is_not_fooled(company: Company) -> None:
    """It names itself as the host, and guesses the words once."""
    async with evil_rendezvous() as (evil, address):
        host = await company.host(address)
        fake = evil.host = evil.open_mailbox()
        pake = HostPake(b"-".join(w.encode() for w in draw_words()), 7, Guesses(MemoryStore()), os.urandom)

        def answer(mail: EvilMail) -> Iterable[EvilMail]:
            parcel = ring_pb2.Parcel.FromString(mail.body).admission
            if mail.step == "start":
                reply = ring_pb2.PakeReply(message=pake.receive_start(parcel.start.message, 1))
                return [EvilMail(fake, mail.sender, admission(ring_pb2.Admission(reply=reply)))]
            offer = ring_pb2.Sealed(nonce=bytes(12), ciphertext=bytes(200))
            return [EvilMail(fake, mail.sender, admission(ring_pb2.Admission(offer=offer)))]

        evil.meddle = answer
        with pytest.raises(Denied):
            await knock(code_of(host), "anna")
        assert [mail.step for mail in evil.seen] == ["start", "confirm"]
        assert all(mail.to == fake for mail in evil.seen)
        await company.end()


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", ""])
async def test_newcomer_when_a_false_host_asks_it_to_try_again_then_one_guess_is_all_that_it_gives(
    code: str,
) -> None:
    guesses = 0
    async with evil_rendezvous() as (evil, address):
        fake = evil.host = evil.open_mailbox()
        pake = HostPake(b"guess", 7, Guesses(MemoryStore()), os.urandom)

        def answer(mail: EvilMail) -> list[EvilMail]:
            nonlocal pake, guesses
            said = ring_pb2.Parcel.FromString(mail.body).admission
            if said.HasField("start"):
                pake = HostPake(b"guess", 7, Guesses(MemoryStore()), os.urandom)
                reply = ring_pb2.PakeReply(message=pake.receive_start(said.start.message, 1))
                return [EvilMail(fake, mail.sender, admission(ring_pb2.Admission(reply=reply)))]
            guesses += said.HasField("confirm")
            return [EvilMail(fake, mail.sender, admission(ring_pb2.Admission(refusal=ring_pb2.Refusal(code=code))))]

        evil.meddle = answer
        with pytest.raises(KafilaError):
            await knock(Code(7, ("ocean", "velvet", "lamp"), address), "anna")
    assert guesses == 1


async def test_host_when_the_rendezvous_guesses_codes_then_paused_after_a_few(company: Company) -> None:
    """Even the right words are no use to it once it has guessed too often."""
    async with evil_rendezvous() as (evil, address):
        host = await company.host(address)
        right = code_of(host)
        guesses = [Code(7, draw_words()) for _ in range(MOST_GUESSES)]
        for code in (*guesses, right, right):
            mailbox, newcomer = evil.open_mailbox(), Newcomer(code, os.urandom)
            evil.deliver(EvilMail(mailbox, 1, admission(newcomer.start())))
            await settled()
        answers = [mail.step for mail in evil.seen if mail.sender == 1]
        assert answers == ["reply"] * MOST_GUESSES + ["refusal"] * 2
        assert host.channel.joining == "open"  # the five might still be confirmed
        for mailbox in range(2, 2 + MOST_GUESSES):
            evil.tell(1, pb.Event(departed=mailbox))
        await settled()
        assert host.channel.joining == "paused"
        assert names(host) == ["host"]
        await company.end()


async def test_log_when_a_member_or_the_rendezvous_signs_its_own_then_nobody_believes_it(company: Company) -> None:
    async with evil_rendezvous() as (evil, address):
        host = await company.host(address)
        anna, ben = await trio(company, evil, host)
        eve = make_identity()
        replica = anna.channel._replica
        entry = ring_pb2.LogEntry(
            index=len(replica.log),
            session=replica.log.session,
            previous=replica.log.place.previous,
            admitted=ring_pb2.Admitted(name="eve", certificate=eve.der, agreement=eve.agreement, mailbox=9),
        ).SerializeToString(deterministic=True)
        for identity in (eve, anna.channel.identity):
            signed = ring_pb2.SignedEntry(entry=entry, signature=identity.sign(b"log entry", entry))
            await anna.channel.send(ring_pb2.Control(entries=ring_pb2.LogEntries(entries=[signed])))
        await anna.channel.send(go(1))
        for person in (host, ben):
            await person.hear(MessageFrom)
            assert names(person) == ["host", "anna", "ben"]
        await company.end()


async def test_log_when_the_rendezvous_withholds_an_entry_then_it_comes_with_the_next_message(company: Company) -> None:
    async with evil_rendezvous() as (evil, address):
        host = await company.host(address)
        _, ben = await trio(company, evil, host)
        evil.meddle = lambda mail: [] if mail.to == ben.channel.rendezvous.place.mailbox else [mail]
        host.channel.remove("anna", "removed")
        await settled()
        assert names(ben) == ["host", "anna", "ben"]
        evil.meddle = lambda mail: [mail]
        await host.channel.send(go(1))
        assert await ben.hear(MessageFrom) == MessageFrom("host", go(1))
        assert names(ben) == ["host", "ben"]
        await company.end()


async def test_members_when_the_rendezvous_says_who_is_gone_then_nobody_is_removed(company: Company) -> None:
    async with evil_rendezvous() as (evil, address):
        host = await company.host(address)
        anna, ben = await trio(company, evil, host)
        for mailbox in (1, 2, 3, 4):
            evil.tell(2, pb.Event(departed=mailbox))
            evil.tell(1, pb.Event(departed=mailbox))
        await anna.hear(MemberDeparted)
        await host.hear(MemberDeparted)
        for person in (host, anna, ben):
            assert names(person) == ["host", "anna", "ben"]
        await company.end()


async def test_mail_when_the_rendezvous_drops_all_of_it_then_links_carry_what_matters(company: Company) -> None:
    async with evil_rendezvous() as (evil, address):
        host = await company.host(address)
        anna, ben = await trio(company, evil, host)
        evil.meddle = lambda mail: []
        for one, other in ((host, anna), (anna, ben)):
            one.channel.attach(other.channel.receive, other.channel.self_name)
            other.channel.attach(one.channel.receive, one.channel.self_name)
        await host.channel.send(go(1))
        assert await ben.hear(MessageFrom) == MessageFrom("host", go(1))
        host.channel.lock(True)
        await host.channel.send(go(2))
        await ben.hear(MessageFrom)
        assert ben.channel.joining == "locked"
        await company.end()


def junk(chance: Random) -> bytes:
    kinds: list[Callable[[], ring_pb2.Parcel | None]] = [
        lambda: None,
        lambda: ring_pb2.Parcel(envelope=ring_pb2.Sealed(key=chance.randrange(9), ciphertext=chance.randbytes(90_000))),
        lambda: ring_pb2.Parcel(envelope=ring_pb2.Sealed(pair=chance.randrange(99), ciphertext=chance.randbytes(50))),
        lambda: ring_pb2.Parcel(admission=ring_pb2.Admission(start=ring_pb2.PakeStart(protocol=1, message=bytes(33)))),
    ]
    parcel = chance.choice(kinds)()
    return chance.randbytes(100) if parcel is None else parcel.SerializeToString()


async def test_member_when_flooded_with_junk_then_nothing_grows_and_it_still_hears(company: Company) -> None:
    chance = Random(7)
    async with evil_rendezvous() as (evil, address):
        host = await company.host(address)
        anna, _ = await trio(company, evil, host)
        for number in range(1000):
            for mailbox in (1, 2):
                evil.deliver(EvilMail(1000 + number, mailbox, junk(chance)))
                evil.tell(mailbox, pb.Event(arrived=10_000 + 2 * number))
        await anna.channel.send(go(1))
        assert await host.hear(MessageFrom) == MessageFrom("anna", go(1))
        for person in (host, anna):
            replica = person.channel._replica
            assert len(replica._early) <= MOST_MESSAGES
            assert replica._early.held_bytes <= MOST_BYTES
            assert len(replica._seen) <= 2
            assert len(replica.log) == 3
            assert len(person.channel.rendezvous.attending) <= MOST_ATTENDING
            assert len(person.channel._delivery.outbox._waiting) <= 256
        assert host.channel._reception._admission is not None
        assert host.channel._reception._admission.exchanges <= MOST_GUESSES
        await company.end()


async def test_session_when_all_mail_is_read_then_it_holds_no_name_word_or_certificate(company: Company) -> None:
    async with evil_rendezvous() as (evil, address):
        host = await company.host(address)
        long_names = ["anna-of-the-long-name", "benedict-of-the-long-name"]  # by chance no such row of bytes comes up
        anna, _ = [await company.join(host.channel.code, name) for name in long_names]
        code, certificate = code_of(host), anna.channel.identity.der
        host.channel.remove(long_names[0], "removed")
        await settled()
        pairs = ["-".join(code.words[:2]), "-".join(code.words[1:])]
        words = [word for word in code.words if len(word) > 4]  # a shorter one may be anywhere
        secrets = [*(text.encode() for text in (*long_names, *pairs, *words)), certificate, certificate[20:60]]
        for mail in evil.seen:
            assert not [secret for secret in secrets if secret in mail.body]
        await company.end()


async def test_newcomer_when_the_host_gives_it_anothers_log_then_denied(company: Company) -> None:
    """A host that admits somebody else in the newcomer's place is found out."""
    async with evil_rendezvous() as (_, address):
        host = await company.host(address)
        offer = await knock(code_of(host), "anna")
        admit, eve = host.channel._upkeep.admit, make_identity()

        def swap(enrol: ring_pb2.EnrolBody, mailbox: int) -> tuple[ring_pb2.AdmittedBody, Acts]:
            wish = ring_pb2.EnrolBody(name=enrol.name, certificate=eve.der, agreement=eve.agreement)
            return admit(wish, mailbox)

        host.channel._upkeep.admit = swap  # type: ignore[method-assign]
        with pytest.raises(Denied, match="somebody else in this machine's place"):
            await offer.enrol()
        await company.end()
