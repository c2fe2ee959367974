"""Coming back as pure cores on a wire without a network: who leads, who is taken back, and never two at once."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, KafilaError, Refused
from kafila_sidecar.session.admission.doorstep import MOST_KNOCKS, Doorstep, ProvedMember
from kafila_sidecar.session.admission.gathering import GatheringPace, Homecoming, Lead, Output
from kafila_sidecar.session.admission.host import AdmissionAnswer
from kafila_sidecar.session.admission.knocker import Knocker, TurnedAway, Welcomed
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.channel.events import HostChanged, Knocked, MemberRemoved
from kafila_sidecar.session.channel.presence import Presence
from kafila_sidecar.session.channel.reception import Reception
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.channel.upkeep import Upkeep
from kafila_sidecar.session.membership.entries import take_over
from kafila_sidecar.session.membership.history import check_goes_on
from kafila_sidecar.session.membership.identity import Identity
from kafila_sidecar.session.membership.log import Log, replay
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.code import Code
from tests.sidecar.session.trust_world import SESSION, MemoryStore, entropy, new_host, newcomer

VERSIONS = Versions("1", 1, "1")
PACE = GatheringPace()


@dataclass
class Returner:
    """One member that was started again; its mailbox is its place in the list, from 1 on."""

    gathering: Homecoming
    replica: Replica
    is_here: bool = True
    ended: object = None


@dataclass
class ReturnersRoom:
    """All who come back, a clock, and mail."""

    people: list[Returner]
    now: float = 0.0
    mail: deque[tuple[int, int, ring_pb2.Admission]] = field(default_factory=deque)

    def come(self, *numbers: int) -> None:
        for number in numbers:
            self.people[number - 1].is_here = True
        for number in self._here:
            self._do(number, self.people[number - 1].gathering.attending(self._here - {number}, self.now))
        self._deliver()

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            due = [(self.people[n - 1].gathering.next_timer(), n) for n in self._here if not self.people[n - 1].ended]
            if not due or min(due)[0] > until:
                self.now = until
                return
            self.now, number = min(due)
            self._do(number, self.people[number - 1].gathering.handle_timer(self.now))
            self._deliver()

    @property
    def leaders(self) -> list[int]:
        return [n for n, one in enumerate(self.people, 1) if isinstance(one.ended, Lead)]

    @property
    def _here(self) -> set[int]:
        return {n for n, one in enumerate(self.people, 1) if one.is_here}

    def _do(self, number: int, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, AdmissionAnswer):
                self.mail.append((number, output.mailbox, output.admission))
            elif self.people[number - 1].ended is None:
                self.people[number - 1].ended = output
                if isinstance(output, Lead):
                    for proved in output.back:
                        self.people[proved.mailbox - 1].ended = "taken back"

    def _deliver(self) -> None:
        while self.mail:
            sender, to, admission = self.mail.popleft()
            one = self.people[to - 1]
            if isinstance(one.ended, Lead):  # a live host by now, which takes back who knocks
                self.people[sender - 1].ended = self.people[sender - 1].ended or "taken back"
            elif one.is_here and one.ended is None:
                self._do(to, one.gathering.receive(sender, admission, self.now))


def room(members: int, *here: int) -> ReturnersRoom:
    """A session of so many, the host first; those `here` come back at once."""
    host = new_host()
    replicas = [host, *(newcomer(host, f"m{number}") for number in range(2, members + 1))]
    whole = host.log.entries
    people = [Returner(gathering(replica, replay(SESSION, whole)), replica, is_here=False) for replica in replicas]
    made = ReturnersRoom(people)
    made.come(*here)
    return made


def gathering(replica: Replica, log: Log) -> Homecoming:
    name = replica.self_name
    return Homecoming(
        log=log, name=name, identity=replica.identity, versions=VERSIONS, entropy=entropy(name), pace=PACE, now=0.0
    )


@pytest.mark.parametrize(
    ("members", "here", "leader"),
    [
        (1, [1], 1),
        (2, [1], None),
        (2, [1, 2], 1),
        (2, [2], None),
        (3, [1], None),
        (3, [1, 3], 1),
        (4, [1, 2], None),
        (4, [1, 2, 3], 1),
    ],
)
def test_host_when_half_of_the_others_are_here_then_it_leads(members: int, here: list[int], leader: int | None) -> None:
    made = room(members, *here)
    made.wait(10.0)
    assert made.leaders == ([leader] if leader else [])


@pytest.mark.parametrize(
    ("members", "here", "leader"),
    [
        (3, [2], None),
        (3, [2, 3], 2),
        (4, [3, 4], 3),
        (4, [4], None),
        (5, [2, 3], None),
        (5, [3, 4, 5], 3),
        (2, [2], None),  # of two, each may be cut off
    ],
)
def test_successor_when_most_others_are_here_and_the_host_stays_away_then_it_leads(
    members: int, here: list[int], leader: int | None
) -> None:
    made = room(members, *here)
    made.wait(PACE.host_missed_s - 1)
    assert made.leaders == []
    made.wait(10.0)
    assert made.leaders == ([leader] if leader else [])


@settings(max_examples=200, deadline=None)
@given(
    members=st.integers(2, 6),
    coming=st.lists(st.tuples(st.integers(1, 6), st.floats(0.0, 12.0)), min_size=1, max_size=8),
)
def test_room_when_members_come_in_any_order_then_never_two_lead(members: int, coming: list[tuple[int, float]]) -> None:
    made = room(members)
    for number, seconds in coming:
        if number <= members:
            made.come(number)
        made.wait(seconds)
    made.come(*range(1, members + 1))
    made.wait(40.0)
    assert len(made.leaders) == 1


def test_lead_when_a_successor_makes_its_entry_then_everybody_takes_it() -> None:
    made = room(3, 2, 3)
    made.wait(30.0)
    lead = made.people[1].ended
    assert isinstance(lead, Lead)
    assert lead.proof is not None
    signed = take_over(lead.log, made.people[1].replica.identity, proof=lead.proof, new_key=b"")
    made.people[0].replica.log.append(signed)
    assert made.people[0].replica.log.host == "m2"


def test_log_when_another_one_knows_more_then_it_is_learnt_before_anybody_leads() -> None:
    host = new_host()
    ada, bob = newcomer(host, "ada"), newcomer(host, "bob")
    short = host.log.entries
    newcomer(host, "cyd")
    people = [
        Returner(gathering(one, replay(SESSION, known)), one, is_here=False)
        for one, known in ((host, host.log.entries), (ada, short), (bob, host.log.entries))
    ]
    made = ReturnersRoom(people)
    made.come(2, 3)
    made.wait(5.0)
    assert len(people[1].gathering.doorstep._log()) == len(host.log)


# ---- At the door of a host that is there


def door(host: Replica) -> Doorstep:
    return Doorstep(
        log=lambda: host.log, name=host.self_name, identity=host.identity, versions=VERSIONS, entropy=entropy("door")
    )


def knocker(one: Replica, versions: Versions = VERSIONS) -> Knocker:
    return Knocker(
        log=replay(SESSION, one.log.entries),
        identity=one.identity,
        versions=versions,
        entropy=entropy("knock"),
        vote_for=lambda _: b"",
    )


def proved(doorstep: Doorstep, one: Knocker, mailbox: int = 9) -> ProvedMember:
    challenge = doorstep.receive(mailbox, one.knock(), 0.0)
    assert isinstance(challenge, AdmissionAnswer)
    proof = one.receive(challenge.admission)
    assert isinstance(proof, ring_pb2.Admission)
    outcome = doorstep.receive(mailbox, proof, 0.0)
    assert isinstance(outcome, ProvedMember)
    return outcome


def test_member_when_it_proves_itself_then_welcomed_with_log_and_key() -> None:
    host = new_host()
    ada = newcomer(host, "ada")
    one, doorstep = knocker(ada), door(host)
    stands = proved(doorstep, one)
    assert stands.member.name == "ada"
    Upkeep(host).remove("ada", "lost")
    Upkeep(host).take_back(stands.member, 9)
    answer = doorstep.welcome(stands, name="ada", key=host.keys.key, log=host.log)
    welcomed = one.receive(answer.admission)
    assert isinstance(welcomed, Welcomed)
    assert (welcomed.key, len(welcomed.log)) == (host.keys.key, len(host.log))
    own = welcomed.log.now.members["ada"]
    assert (own.mailbox, own.index, own.first_index) == (9, len(host.log) - 1, ada.me.index)


def succeeded() -> tuple[Replica, Replica, Replica]:
    """A host that does not know that it was voted out, its successor ada, and bob, who voted for ada."""
    host = new_host()
    ada, bob = newcomer(host, "ada"), newcomer(host, "bob")
    ada.log.append(host.log.entries[-1])
    *_, vote = Upkeep(bob).vote("ada").letters
    upkeep = Upkeep(ada)
    upkeep.vote("ada")
    upkeep.settle(ada.receive(vote.sealed) or [])
    return host, ada, bob


def reception_of(replica: Replica, answers: list[AdmissionAnswer]) -> Reception:
    return Reception(
        replica=replica,
        upkeep=Upkeep(replica),
        place=Code(7, (), RendezvousAddress("127.0.0.1", 7770)),
        guesses=MemoryStore(),
        versions=VERSIONS,
        answer=answers.append,
        where=cast(Any, None),
        presence=Presence(1.0),
    )


def test_member_when_somebody_knocks_at_it_then_it_answers_nobody_and_tells_of_members() -> None:
    host = new_host()
    ada, bob = newcomer(host, "ada"), newcomer(host, "bob")
    ada.log.append(host.log.entries[-1])
    eve = newcomer(host, "eve")  # of whom ada does not know yet
    answers: list[AdmissionAnswer] = []
    reception = reception_of(ada, answers)
    told = {one.self_name: reception.receive(9, knocker(one).knock(), 0.0).events for one in (host, bob, eve)}
    assert told == {"host": [Knocked("host")], "bob": [Knocked("bob")], "eve": []}
    assert reception.receive(9, ring_pb2.Admission(knock=ring_pb2.Knock()), 0.0).events == []
    assert answers == []


def test_host_when_its_successor_comes_back_to_it_then_it_hears_that_it_is_none_and_takes_nobody_back() -> None:
    host, ada, _ = succeeded()
    assert (ada.log.host, host.log.host) == ("ada", "host")
    answers: list[AdmissionAnswer] = []
    reception = reception_of(host, answers)
    acts = reception.take_back(proved(door(host), knocker(ada)), 0.0)
    assert acts.events == [MemberRemoved("host", "lost"), HostChanged("ada")]
    assert (host.log.host, answers, acts.letters) == ("ada", [], [])


@pytest.mark.parametrize("is_lost_one_here", [False, True])
def test_host_of_two_when_who_was_lost_before_is_here_then_it_does_not_wait_for_the_other_one(
    is_lost_one_here: bool,
) -> None:
    """Its only member can't go on without it, wherever that is."""
    before, ada, _ = succeeded()
    people = [Returner(gathering(one, replay(SESSION, ada.log.entries)), one, is_here=False) for one in (ada, before)]
    made = ReturnersRoom(people)
    made.come(1, *([2] if is_lost_one_here else []))
    made.wait(40.0)
    assert made.leaders == ([1] if is_lost_one_here else [])
    assert people[1].ended == ("taken back" if is_lost_one_here else None)


def test_member_when_a_stranger_answers_by_the_name_of_who_was_lost_then_it_learns_nothing() -> None:
    host, ada, bob = succeeded()
    liar = Doorstep(
        log=lambda: host.log, name="host", identity=bob.identity, versions=VERSIONS, entropy=entropy("door")
    )
    one = knocker(ada)
    challenge = liar.receive(9, one.knock(), 0.0)
    assert isinstance(challenge, AdmissionAnswer)
    with pytest.raises(Denied):
        one.receive(challenge.admission)


def test_steps_when_said_again_then_nothing_comes_of_them() -> None:
    host = new_host()
    ada = newcomer(host, "ada")
    one, doorstep = knocker(ada), door(host)
    knock = one.knock()
    challenge = doorstep.receive(9, knock, 0.0)
    assert isinstance(challenge, AdmissionAnswer)
    proof = one.receive(challenge.admission)
    assert isinstance(proof, ring_pb2.Admission)
    assert isinstance(doorstep.receive(9, proof, 0.0), ProvedMember)
    assert doorstep.receive(9, proof, 0.0) is None
    assert isinstance(doorstep.receive(9, knock, 0.0), AdmissionAnswer)  # another challenge
    assert doorstep.receive(9, proof, 0.0) is None
    assert doorstep.receive(8, proof, 0.0) is None


def test_stranger_when_it_knocks_then_it_hears_nothing() -> None:
    host, elsewhere = new_host(), new_host()
    stranger = newcomer(elsewhere, "ada")
    assert door(host).receive(9, knocker(stranger).knock(), 0.0) is None


def test_knocks_when_there_are_many_then_bounded() -> None:
    host = new_host()
    ada, doorstep = newcomer(host, "ada"), door(host)
    answers = [doorstep.receive(mailbox, knocker(ada).knock(), 0.0) for mailbox in range(MOST_KNOCKS + 5)]
    assert sum(answer is not None for answer in answers) == MOST_KNOCKS
    assert doorstep.receive(99, knocker(ada).knock(), 61.0) is not None


def test_refusal_when_sealed_then_it_is_the_hosts_own_sentence() -> None:
    host = new_host()
    ada, doorstep = newcomer(host, "ada"), door(host)
    one = knocker(ada, Versions("2", 2, "1"))
    stands = proved(doorstep, one)
    with pytest.raises(Refused, match="planner 1") as refused:
        doorstep.check_versions(stands)
    outcome = one.receive(doorstep.refuse(stands, refused.value).admission)
    assert isinstance(outcome, TurnedAway)
    assert "planner 1" in str(outcome.error)


# ---- Which history is followed


def removing(log: Log, identity: Identity, *names: str) -> Log:
    host = Replica(
        identity=identity, self_name="host", log=replay(SESSION, log.entries), key=bytes(32), entropy=entropy()
    )
    for name in names:
        Upkeep(host).remove(name, "lost")
    return host.log


def test_history_when_it_goes_on_or_only_its_own_work_differs_then_taken_else_refused() -> None:
    host = new_host()
    ada, bob = newcomer(host, "ada"), newcomer(host, "bob")
    base = host.log
    one, other = removing(base, host.identity, "ada"), removing(base, host.identity, "bob")
    check_goes_on(base, one, ada.identity)
    check_goes_on(one, other, host.identity)  # its own work
    with pytest.raises(Denied):
        check_goes_on(one, other, bob.identity)
    with pytest.raises(Denied):
        check_goes_on(one, base, bob.identity)  # who answers knows less


def test_take_back_when_the_name_is_taken_or_it_was_put_out_then_refused() -> None:
    host = new_host()
    ada, bob = newcomer(host, "ada"), newcomer(host, "bob")
    upkeep = Upkeep(host)
    upkeep.remove("ada", "lost")
    newcomer(host, "Ada")
    for reason, member in (("", ada.me), ("removed", bob.me)):
        if reason:
            upkeep.remove(member.name, reason)
        with pytest.raises(KafilaError) as refused:
            upkeep.take_back(member, 9)
        assert isinstance(refused.value, Refused)
