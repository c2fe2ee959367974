"""The session outlives its host: by its goodbye, or when more than half of the others miss it. Never by one word."""

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied
from kafila_sidecar.session.channel.events import Doubted, HostChanged, HostMissed, MemberRemoved, MessageFrom
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.membership import rekey
from kafila_sidecar.session.membership.entries import admit, take_over
from kafila_sidecar.session.membership.identity import make_identity
from kafila_sidecar.session.membership.log import Log, replay
from kafila_sidecar.session.membership.members import TookOver
from kafila_sidecar.session.membership.rivals import Forked
from kafila_sidecar.session.membership.succession import resign, vote
from tests.sidecar.session.trust_world import SESSION, go
from tests.sidecar.session.village import Village, told

NAMES = ("anna", "ben", "carl", "dora")


def hosts(village: Village, *names: str) -> set[str]:
    return {village[name].replica.log.host for name in names}


def miss(village: Village, voters: tuple[str, ...], successor: str = "anna") -> None:
    """These members find the host gone, and vote."""
    for name in voters:
        village.do(name, village[name].upkeep.vote(successor))


def test_host_when_it_leaves_then_who_joined_first_succeeds_it_and_the_session_goes_on() -> None:
    village = Village("anna", "ben", "carl")
    village.goodbye("host")
    assert hosts(village, "anna", "ben", "carl") == {"anna"}
    for name in ("anna", "ben", "carl"):
        assert village[name].names == ["anna", "ben", "carl"]
        assert told(village[name], HostChanged) == [HostChanged("anna")]
        assert told(village[name], MemberRemoved) == [MemberRemoved("host", "left")]
    dora = village.join("dora", by="anna")
    village.say("dora", go(1))
    assert MessageFrom("dora", go(1)) in village["ben"].told
    assert dora.replica.log.now.takeovers == 1
    assert dora.replica.log.founder == "host"


def test_host_when_it_has_left_then_it_reads_and_writes_nothing_more() -> None:
    village = Village("anna", "ben")
    village.goodbye("host")
    village.say("anna", go(1))
    assert told(village["host"], MessageFrom) == []
    assert MemberRemoved("host", "left") in village["host"].told
    village.send(village["anna"].replica.write(go(2)), ["host"])
    assert told(village["host"], MessageFrom) == []
    village.send(village["host"].replica.write(go(666)), ["anna", "ben"])
    assert {type(error) for name in ("anna", "ben") for error in village[name].refused} == {Denied}
    assert village["host"].replica.keys.key != village["anna"].replica.keys.key


@pytest.mark.parametrize(
    ("others", "voters", "succeeds"),
    [
        (1, 1, False),  # each may be cut off from the other
        (2, 1, False),
        (2, 2, True),
        (3, 1, False),
        (3, 2, True),
        (4, 2, False),
        (4, 3, True),
    ],
)
def test_host_when_missed_then_succeeded_only_by_more_than_half_of_the_others(
    others: int, voters: int, succeeds: bool
) -> None:
    village = Village(*NAMES[:others])
    village.deaf.add("host")
    miss(village, NAMES[:voters])
    assert hosts(village, *NAMES[:others]) == ({"anna"} if succeeds else {"host"})


@pytest.mark.parametrize("liar", ["anna", "ben", "carl"])
def test_host_when_one_member_lies_that_it_is_lost_then_it_stays_and_says_so(liar: str) -> None:
    village = Village("anna", "ben", "carl")
    for _ in range(5):
        miss(village, (liar,), successor="anna" if liar != "carl" else "carl")
    assert hosts(village, "host", "anna", "ben", "carl") == {"host"}
    assert told(village["host"], Doubted) == [Doubted(liar)] * 5
    assert village["host"].replica.log.now.key_number == 1
    assert len(village["host"].replica.log) == 4


def test_votes_when_the_host_answered_them_then_they_are_void_for_good() -> None:
    """An honest member missed the host for a moment; a liar keeps its vote for later."""
    village = Village("anna", "ben", "carl")
    village.deaf.add("host")
    miss(village, ("ben",))
    kept = village["anna"].replica.ballots._votes["ben"]
    village.deaf.discard("host")
    miss(village, ("carl",), successor="ben")  # whatever the host hears first, it answers
    village.do("anna", village["anna"].upkeep.vote("anna"))
    assert hosts(village, "host", "ben", "carl") == {"host"}
    anna = village["anna"].replica
    ballots = [ring_pb2.Ballot(voter="ben", signature=kept[1])]
    for standing in (0, anna.ballots.standing):
        own = vote(anna.identity, anna.log.place, successor=anna.log.now.heirs[0], standing=standing)
        proof = ring_pb2.TakenOver(
            successor="anna",
            reason="lost",
            standing=standing,
            ballots=[*ballots, ring_pb2.Ballot(voter="anna", signature=own)],
        )
        forged = forge(anna, proof)
        village.send(forged, ["host", "ben", "carl"])
        assert hosts(village, "host", "ben", "carl") == {"host"}


def forge(replica: Replica, proof: ring_pb2.TakenOver) -> bytes:
    """A sealed entry by which a member takes over, whether it may or not."""
    _, new_key = replica.keys.draw(replica.others)
    taken = ring_pb2.TakenOver(rekey=rekey.digest(new_key))
    taken.MergeFrom(proof)
    place = replica.log.place
    entry = ring_pb2.LogEntry(index=place.index, previous=place.previous, session=place.session, taken_over=taken)
    data = entry.SerializeToString(deterministic=True)
    signed = ring_pb2.SignedEntry(entry=data, signature=replica.identity.sign(b"log entry", data), rekey=new_key)
    return replica.write(ring_pb2.Control(entries=ring_pb2.LogEntries(entries=[signed])))


def test_succession_when_its_proof_is_none_then_nobody_follows() -> None:
    village = Village("anna", "ben", "carl")
    ben, host = village["ben"].replica, village["host"].replica
    place = ben.log.place
    own = vote(ben.identity, place, successor=ben.log.now.members["ben"], standing=0)
    ballot = ring_pb2.Ballot(voter="ben", signature=own)
    stranger = make_identity()
    strange = vote(stranger, place, successor=ben.log.now.members["ben"], standing=0)
    earlier = replay(SESSION, ben.log.entries[:2]).place
    proofs = {
        "no votes": {"reason": "lost"},
        "no reason": {"reason": "", "ballots": [ballot]},
        "one vote": {"reason": "lost", "ballots": [ballot]},
        "one vote, twice": {"reason": "lost", "ballots": [ballot, ballot]},
        "one vote for two": {"reason": "lost", "ballots": [ballot, ring_pb2.Ballot(voter="anna", signature=own)]},
        "a stranger's vote": {"reason": "lost", "ballots": [ballot, ring_pb2.Ballot(voter="zoe", signature=strange)]},
        "the host's vote": {"reason": "lost", "ballots": [ballot, ring_pb2.Ballot(voter="host", signature=own)]},
        "votes of another time": {"reason": "lost", "standing": 7, "ballots": [ballot, ballot]},
        "no resignation": {"reason": "left"},
        "a resignation of its own": {"reason": "left", "resignation": resign(ben.identity, place)},
        "the host's of another place": {"reason": "left", "resignation": resign(host.identity, earlier)},
        "the host's, but not for ben": {"reason": "left", "resignation": resign(host.identity, place)},
    }
    for fields in proofs.values():
        proof = ring_pb2.TakenOver(successor="ben", **fields)  # type: ignore[arg-type]
        village.send(forge(ben, proof), ["host", "anna", "carl"])
        assert hosts(village, "host", "anna", "carl") == {"host"}
    assert village.forked() == set()


def test_votes_when_the_log_grows_meanwhile_then_given_again_for_where_it_ends_now() -> None:
    village = Village("anna", "ben", "carl")
    village.deaf |= {"ben", "carl"}
    village.join("dora")
    village.deaf = {"host"}
    miss(village, ("ben", "carl"))
    assert hosts(village, "anna", "ben", "carl", "dora") == {"host"}
    miss(village, ("anna",))  # which brings them the entry
    assert hosts(village, "anna", "ben", "carl", "dora") == {"anna"}
    assert village["carl"].names == ["anna", "ben", "carl", "dora"]


def test_succession_when_the_first_in_order_is_lost_too_then_the_next_one_by_votes() -> None:
    village = Village("anna", "ben", "carl", "dora")
    village.deaf |= {"host", "anna"}
    miss(village, ("ben", "carl"), successor="ben")
    assert hosts(village, "ben", "carl", "dora") == {"host"}
    miss(village, ("dora",), successor="ben")
    assert hosts(village, "ben", "carl", "dora") == {"ben"}
    village.do("ben", village["ben"].upkeep.remove("anna", "lost"))
    assert village["dora"].names == ["ben", "carl", "dora"]


def test_succession_when_the_successor_is_lost_in_turn_then_the_next_one() -> None:
    village = Village("anna", "ben", "carl")
    village.goodbye("host")
    village.deaf.add("anna")
    miss(village, ("ben", "carl"), successor="ben")
    assert hosts(village, "ben", "carl") == {"ben"}
    assert village["carl"].replica.log.now.takeovers == 2
    village.goodbye("ben")
    assert village["carl"].names == ["carl"]
    assert village["carl"].replica.is_host


def test_host_when_it_was_away_and_comes_back_then_it_is_a_removed_member() -> None:
    village = Village("anna", "ben")
    village.deaf.add("host")
    miss(village, ("anna", "ben"))
    entries = village["anna"].replica.log.entries
    village.deaf.discard("host")
    events = village["anna"].replica._write(ring_pb2.Control(entries=ring_pb2.LogEntries(entries=entries)), 1)
    village.send(events, ["host"])
    assert told(village["host"], MemberRemoved) == [MemberRemoved("host", "lost")]
    assert not village["host"].replica.is_host


def test_members_when_their_host_acted_while_the_others_replaced_it_then_whoever_hears_both_refuses() -> None:
    village = Village("anna", "ben", "carl", "dora")
    village.deaf |= {"anna", "ben", "carl"}
    village.join("eve")  # dora hears of it
    village.deaf = {"host", "dora"}
    for name in ("anna", "ben", "carl"):
        village.do(name, village[name].upkeep.vote("anna"))
    assert hosts(village, "anna", "ben", "carl") == {"anna"}
    village.deaf = set()
    letter = village["anna"].replica._write(
        ring_pb2.Control(entries=ring_pb2.LogEntries(entries=village["anna"].replica.log.entries)), 1
    )
    village.send(letter, ["dora", "host"])
    assert village.forked() == {"dora", "host"}
    assert hosts(village, "dora", "host") == {"host"}


def test_successor_when_it_signs_two_histories_then_forked_for_all() -> None:
    village = Village("anna", "ben", "carl")
    village.goodbye("host")
    anna = village["anna"].replica
    twin = replay(SESSION, anna.log.entries)
    eve = make_identity()
    entry = admit(twin, anna.identity, name="eve", certificate=eve.der, agreement=eve.agreement, mailbox=9)
    village.join("dora", by="anna")
    village.send(anna.write(ring_pb2.Control(entries=ring_pb2.LogEntries(entries=[entry]))), ["ben", "carl"])
    assert village.forked() == {"anna", "ben", "carl", "dora"}


def test_former_host_when_it_signs_on_then_denied_and_nobody_is_brought_down() -> None:
    village = Village("anna", "ben", "carl")
    host = village["host"].replica
    twin = replay(SESSION, host.log.entries)
    eve = make_identity()
    entry = admit(twin, host.identity, name="eve", certificate=eve.der, agreement=eve.agreement, mailbox=9)
    village.goodbye("host")
    carl = village["carl"].replica
    length = len(carl.log)
    for signed in (entry, *twin.entries):
        village.send(carl.write(ring_pb2.Control(entries=ring_pb2.LogEntries(entries=[signed]))), ["anna", "ben"])
    assert village.forked() == set()
    assert len(village["anna"].replica.log) == len(village["ben"].replica.log) == length
    assert "eve" not in village["ben"].names


def test_log_when_replayed_over_a_succession_then_same_members_and_host() -> None:
    village = Village("anna", "ben")
    village.goodbye("host")
    village.join("carl", by="anna")
    entries = village["anna"].replica.log.entries
    copy = replay(SESSION, entries)
    assert (copy.now, copy.founder) == (village["ben"].replica.log.now, "host")
    shortened = Log(SESSION)
    for signed in entries[:3]:
        shortened.append(signed)
    with pytest.raises(Denied):
        shortened.append(entries[4])  # the successor's, before it is one
    assert isinstance(shortened.append(entries[3]), TookOver)


def test_take_over_when_two_are_entitled_then_the_second_forks() -> None:
    """Members voted for one, then lost it too and voted for another, while its entry was on its way."""
    village = Village("anna", "ben", "carl")
    village.deaf.add("host")
    replicas = {name: village[name].replica for name in ("anna", "ben", "carl")}
    logs = {name: replay(SESSION, replica.log.entries) for name, replica in replicas.items()}
    entries = {}
    for name in ("anna", "ben"):
        place, heir = logs[name].place, logs[name].now.members[name]
        ballots = [
            ring_pb2.Ballot(voter=voter, signature=vote(replicas[voter].identity, place, successor=heir, standing=0))
            for voter in ("ben", "carl")
        ]
        proof = ring_pb2.TakenOver(successor=name, reason="lost", ballots=ballots)
        entries[name] = take_over(logs[name], replicas[name].identity, proof=proof, new_key=b"")
    logs["carl"].append(entries["anna"])
    with pytest.raises(Forked):
        logs["carl"].append(entries["ben"])
    assert logs["carl"].host == "anna"


def test_ballots_when_flooded_then_bounded_by_the_members() -> None:
    village = Village("anna", "ben", "carl")
    village.deaf.add("host")
    for number in range(50):
        miss(village, ("ben",), successor=("anna", "ben", "carl")[number % 3])
    assert len(village["carl"].replica.ballots._votes) == 1
    assert len(village["carl"].replica._early) == 0


def test_votes_when_the_heir_does_not_miss_the_host_itself_then_it_hears_that_others_do_and_waits() -> None:
    village = Village(*NAMES)
    miss(village, ("ben", "carl", "dora"))
    assert hosts(village, "host", *NAMES) == {"host"}
    assert told(village["anna"], HostMissed) == [HostMissed(name) for name in ("ben", "carl", "dora")]
    village = Village(*NAMES)
    village.deaf.add("host")
    miss(village, ("ben", "carl", "dora"))
    assert hosts(village, *NAMES) == {"host"}
    assert told(village["anna"], HostMissed) == [HostMissed(name) for name in ("ben", "carl", "dora")]
    miss(village, ("anna",))
    assert hosts(village, *NAMES) == {"anna"}


def test_votes_when_old_mail_comes_then_nobody_takes_over_before_all_of_it_was_read() -> None:
    village = Village(*NAMES)
    anna, host = village["anna"], village["host"]
    village.deaf |= {"host"}
    anna.upkeep.listen(True)
    miss(village, NAMES)
    assert hosts(village, *NAMES) == {"host"}
    host.replica.ballots.stood(1)
    village.deaf.clear()
    village.do("host", host.upkeep.settle([Doubted("ben")]))
    anna.upkeep.listen(False)
    village.do("anna", anna.upkeep.settle([]))
    assert hosts(village, "host", *NAMES) == {"host"}


def test_votes_when_old_mail_was_read_and_the_host_said_nothing_then_the_heir_takes_over() -> None:
    village = Village(*NAMES)
    anna = village["anna"]
    village.deaf.add("host")
    anna.upkeep.listen(True)
    miss(village, NAMES)
    anna.upkeep.listen(False)
    village.do("anna", anna.upkeep.settle([]))
    assert hosts(village, *NAMES) == {"anna"}


def test_vote_when_the_voter_hears_the_host_again_then_it_is_repeated_to_nobody() -> None:
    village = Village(*NAMES)
    village.deaf |= {"anna", "host"}
    miss(village, ("ben",))
    village.deaf.discard("host")
    village.say("host", go(1))
    village.say("ben", go(2))
    village.returns("anna")
    assert MessageFrom("ben", go(2)) in village["anna"].told
    assert told(village["anna"], HostMissed) == []
