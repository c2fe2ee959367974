"""Members without a network: messages in any order, repeated, forged; the log that grows meanwhile."""

import itertools
import random
from typing import cast

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput, Refused
from kafila_sidecar.session.channel.events import (
    HostChanged,
    MemberDeparted,
    MemberJoined,
    MemberRemoved,
    MemberReturned,
    MessageFrom,
    Outvoted,
    Spoke,
    WentAstray,
)
from kafila_sidecar.session.channel.presence import Presence
from kafila_sidecar.session.channel.replica import KEPT_MESSAGES, HostForked, Replica
from kafila_sidecar.session.channel.upkeep import Upkeep
from kafila_sidecar.session.channel.waiting import MOST_BYTES, MOST_MESSAGES
from kafila_sidecar.session.membership.entries import admit, lock, take_back
from kafila_sidecar.session.membership.identity import Identity, make_identity
from kafila_sidecar.session.membership.log import replay
from kafila_sidecar.session.membership.rivals import Forked
from tests.sidecar.session.trust_world import KEY, SESSION, entropy, go, new_host, newcomer, wish
from tests.sidecar.session.village import Village, told


def three() -> tuple[Replica, Replica, Replica]:
    host = new_host()
    anna = newcomer(host, "anna")
    ben = newcomer(host, "ben")
    anna.receive(host.write_entries())
    return host, anna, ben


def keys(identity: Identity) -> dict[str, bytes]:
    return {"certificate": identity.der, "agreement": identity.agreement}


def names(replica: Replica) -> list[str]:
    return [member.name for member in replica.members]


def test_receive_when_message_comes_twice_then_told_once() -> None:
    host, anna, ben = three()
    sealed = anna.write(go(1))
    for other in (host, ben):
        assert other.receive(sealed) == [MessageFrom("anna", go(1))]
        assert other.receive(sealed) is None


def test_receive_when_own_message_echoes_then_not_told() -> None:
    _, anna, ben = three()
    sealed = anna.write(go(1))
    ben.receive(sealed)
    assert anna.receive(sealed) is None


@pytest.mark.parametrize("seed", range(10))
def test_receive_when_messages_come_in_any_order_then_each_is_told_once(seed: int) -> None:
    chance = random.Random(seed)
    host, anna, ben = three()
    sent = {name: [replica.write(go(i)) for i in range(30)] for name, replica in (("host", host), ("anna", anna))}
    mail = [(name, sealed) for name, batch in sent.items() for sealed in batch] * 3
    chance.shuffle(mail)
    told = [event for _, sealed in mail for event in ben.receive(sealed) or []]
    assert len(told) == 60
    for name in sent:
        epochs = [event.control.epoch for event in told if isinstance(event, MessageFrom) and event.sender == name]
        assert sorted(epochs) == list(range(30))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_receive_when_log_entries_come_in_any_order_then_same_members(order: tuple[int, ...]) -> None:
    host = new_host()
    anna = newcomer(host, "anna")
    entries = []
    for name in ("ben", "carl", "dora"):
        newcomer(host, name)
        entries.append(host.write_entries())
    events = [one for place in order for one in anna.receive(entries[place]) or []]
    assert names(anna) == names(host)
    assert [one.member.name for one in events if isinstance(one, MemberJoined)] == ["ben", "carl", "dora"]


def test_receive_when_a_newcomers_message_is_quicker_than_its_admission_then_told_after_it() -> None:
    host = new_host()
    anna = newcomer(host, "anna")
    ben = newcomer(host, "ben")
    entry = host.write_entries()
    assert anna.receive(ben.write(go(7))) is None
    events = anna.receive(entry)
    assert events is not None
    assert [type(one) for one in events] == [Spoke, MemberJoined, MessageFrom]


def test_receive_when_message_was_written_before_its_reader_joined_then_not_told() -> None:
    host = new_host()
    anna = newcomer(host, "anna")
    early = [host.write(go(1)), anna.write(go(2))]
    ben = newcomer(host, "ben")
    unaware = anna.write(go(3))
    for sealed in (*early, unaware):
        assert ben.receive(sealed) == []
    anna.receive(host.write_entries())
    assert ben.receive(anna.write(go(4))) == [MessageFrom("anna", go(4))]


def test_receive_when_member_was_removed_then_its_messages_are_denied_and_it_learns_why() -> None:
    host, anna, ben = three()
    late = ben.write(go(1))
    acts = Upkeep(host).remove("ben", "removed")
    assert acts.events == [MemberRemoved("ben", "removed")]
    entry = acts.letters[0].sealed
    assert anna.receive(entry) == [Spoke("host"), MemberRemoved("ben", "removed")]
    assert ben.receive(entry) == [Spoke("host"), MemberRemoved("ben", "removed")]
    for replica in (host, anna):
        with pytest.raises(Denied):
            replica.receive(late)
    assert ben.receive(anna.write(go(2))) is None  # sealed with a key that ben can't know


def test_receive_when_a_removal_comes_and_what_waited_for_it_then_who_spoke_is_there_before_it_has_effect() -> None:
    """Else a host that is heard again by it is voted out in that moment, if it leaves another one to vote for."""
    host, anna, ben = three()
    newcomer(host, "carl")
    for one in (anna, ben):
        one.receive(host.write_entries())
    removal = Upkeep(host).remove("carl", "removed").letters[0].sealed
    ben.receive(removal)
    assert anna.receive(host.write(go(1))) is None
    events = [MemberRemoved("carl", "removed"), MessageFrom("host", go(1))]
    assert anna.receive(ben.write_entries()) == [Spoke("host"), Spoke("ben"), *events]


def test_receive_when_a_member_pretends_to_be_another_then_denied_and_number_is_not_burnt() -> None:
    host, anna, ben = three()
    impostor = Replica(
        identity=anna.identity, self_name="host", log=replay(SESSION, host.log.entries), key=KEY, entropy=entropy("x")
    )
    with pytest.raises(Denied):
        ben.receive(impostor.write(go(666)))
    assert ben.receive(host.write(go(1))) == [MessageFrom("host", go(1))]


def test_receive_when_somebody_without_the_key_writes_then_denied() -> None:
    host, _, ben = three()
    outsider = Replica(
        identity=host.identity,
        self_name="host",
        log=replay(SESSION, host.log.entries),
        key=b"x" * 32,
        entropy=entropy(),
    )
    with pytest.raises(Denied):
        ben.receive(outsider.write(go(1)))


def test_receive_when_a_member_that_is_not_host_makes_entries_then_log_stays() -> None:
    host, anna, ben = three()
    forged = replay(SESSION, host.log.entries)
    with pytest.raises(Denied):
        admit(forged, anna.identity, name="eve", **keys(make_identity()), mailbox=9)
    entry = ring_pb2.LogEntry(index=3, session=SESSION)
    data = entry.SerializeToString()
    bad = ring_pb2.SignedEntry(entry=data, signature=anna.identity.sign(b"log entry", data))
    assert ben.receive(anna.write(ring_pb2.Control(entries=ring_pb2.LogEntries(entries=[bad])))) == [Spoke("anna")]
    assert names(ben) == ["host", "anna", "ben"]


def test_receive_when_host_forks_the_log_then_forked() -> None:
    host, anna, ben = three()
    twin = Replica(
        identity=host.identity, self_name="host", log=replay(SESSION, host.log.entries), key=KEY, entropy=entropy("y")
    )
    newcomer(host, "carl")
    newcomer(twin, "eve")
    anna.receive(host.write_entries())
    for _ in range(5):
        twin.write(go(0))
    with pytest.raises(Forked):
        anna.receive(twin.write_entries())
    ben.receive(twin.write_entries())
    with pytest.raises(Forked):
        ben.receive(host.write(ring_pb2.Control(entries=ring_pb2.LogEntries(entries=host.log.entries))))


def test_members_when_not_the_host_admits_or_removes_then_refused() -> None:
    host, anna, _ = three()
    with pytest.raises(Refused, match="only the host, host,"):
        Upkeep(anna).remove("ben", "lost")
    with pytest.raises(Refused):
        Upkeep(anna).admit(wish("eve", make_identity()), 9)
    with pytest.raises(InvalidInput):
        Upkeep(host).remove("eve", "lost")


def test_repeat_when_a_member_was_away_then_it_misses_nothing_and_nothing_is_told_twice() -> None:
    host, anna, _ = three()
    seen = host.write(go(1))
    anna.receive(seen)
    missed = host.write(go(2))
    newcomer(host, "carl")
    host.write_entries()
    assert missed
    events = [one for sealed in host.repeat_for(host.members[1]) for one in anna.receive(sealed) or []]
    assert [one.control.epoch for one in events if isinstance(one, MessageFrom)] == [2]
    assert names(anna) == names(host)


def test_repeat_when_member_joined_later_then_it_gets_nothing_from_before() -> None:
    host, anna, _ = three()
    anna.write(go(1))
    replicas = {"carl": newcomer(host, "carl")}
    anna.receive(host.write_entries())
    written_for_carl = anna.write(go(2))
    repeated = anna.repeat_for(anna.members[3])
    assert len(repeated) == 1
    carl = replicas["carl"]
    assert carl.receive(repeated[0]) == [MessageFrom("anna", go(2))]
    assert carl.receive(written_for_carl) is None


def started_again(host: Replica, who: Replica) -> Replica:
    """A member whose process is another one by now, and that the host, itself or another one, has taken back."""
    log = replay(SESSION, host.log.entries)
    member = log.now.members[who.self_name]
    take_back(log, host.identity, admitted=member.first_index, mailbox=member.mailbox)
    return Replica(identity=who.identity, self_name=who.self_name, log=log, key=KEY, entropy=entropy("again"))


@pytest.mark.parametrize("words_first", [True, False])
@pytest.mark.parametrize("written_before", [0, 1, 40])
@pytest.mark.parametrize("by_letter", [True, False])
def test_host_when_it_was_started_again_then_who_waits_for_it_hears_so_by_itself(
    words_first: bool, written_before: int, by_letter: bool
) -> None:
    """Without its entry nobody knows that it came back; what it wrote before says nothing of that. By letter: what was
    for all did not come, and the host sees by the other's own message what that one lacks."""
    host, anna, _ = three()
    for number in range(written_before):
        anna.receive(host.write(go(number)))
    again = started_again(host, host)
    entries, words = again.write_entries(), again.write(go(99))
    came: list[object] = []
    if words_first:
        assert anna.receive(words) is None
        assert anna.is_behind
    if by_letter:
        again.receive(anna.write(ring_pb2.Control()))
        ((reader, entries),) = again.take_letters()
        assert reader.name == "anna"
    for sealed in (entries, words):
        came += anna.receive(sealed) or []
    assert [one for one in came if isinstance(one, HostChanged)] == [HostChanged("host")]
    assert [one for one in came if isinstance(one, MessageFrom)] == [MessageFrom("host", go(99))]
    assert anna.receive(words) is None


@pytest.mark.parametrize("written_before", [0, 1, 40])
def test_member_when_it_was_started_again_then_its_words_are_told_after_the_news_that_it_is_back(
    written_before: int,
) -> None:
    """Not before: whoever hears that a member is back forgets what it said until then."""
    host, anna, ben = three()
    for number in range(written_before):
        anna.receive(ben.write(go(number)))
    again = started_again(host, ben)
    words = again.write(go(99))
    assert anna.receive(words) is None
    take_back(host.log, host.identity, admitted=again.me.first_index, mailbox=again.me.mailbox)
    told_of = anna.receive(host.write_entries())
    assert told_of is not None
    assert [type(one) for one in told_of if not isinstance(one, Spoke)] == [MemberRemoved, MemberJoined, MessageFrom]


def test_members_when_their_host_takes_one_back_for_one_of_them_only_then_it_is_convicted() -> None:
    """To the other one that host says something else in that place: who came back numbers anew, and is heard."""
    host, anna, ben = three()
    anna.receive(host.write_entries())
    ben = started_again(host, ben)
    lock(host.log, host.identity, locked=True)
    anna.receive(host.write_entries())
    convicted = []
    for writer, reader in ((ben, anna), (anna, ben), (ben, anna)):
        for sealed in (writer.write(go(1)), *(letter for _, letter in writer.take_letters())):
            try:
                reader.receive(sealed)
            except HostForked:
                convicted.append(reader.self_name)
            except Denied:  # a letter by an entry that is not in this history
                continue
    assert convicted


def test_attending_when_streams_end_and_return_then_each_change_is_told_once() -> None:
    host, _, _ = three()
    presence = Presence(absence_s=8.0)
    assert presence.look(host.others, [2, 3, 77], 0.0) == []
    assert presence.look(host.others, [2], 0.0) == [MemberDeparted("ben")]
    assert presence.look(host.others, [2], 0.0) == []
    assert presence.look(host.others, [3], 0.0) == [MemberReturned("ben"), MemberDeparted("anna")]
    Upkeep(host).remove("anna", "lost")
    presence.forget("anna")
    assert presence.look(host.others, [3], 0.0) == []


def test_attending_when_the_rendezvous_was_away_then_nobody_is_missed_before_all_could_be_back() -> None:
    host, _, _ = three()
    presence = Presence(absence_s=8.0)
    presence.lose_rendezvous()
    assert presence.look(host.others, [], 100.0) == []
    assert presence.find_rendezvous(100.0) == 108.0
    assert presence.look(host.others, [2], 107.9) == []
    assert presence.look(host.others, [2], 108.0) == [MemberDeparted("ben")]


def test_mail_when_the_rendezvous_is_back_then_who_is_not_there_yet_gets_none_though_nobody_misses_it() -> None:
    host, _, _ = three()
    presence = Presence(absence_s=8.0)
    presence.lose_rendezvous()
    presence.find_rendezvous(100.0)
    assert presence.look(host.others, [2], 101.0) == []
    assert {name: presence.gets_mail(name) for name in ("anna", "ben")} == {"anna": True, "ben": False}
    presence.look(host.others, [2, 3], 102.0)
    assert presence.gets_mail("ben")


def test_replica_when_flooded_then_bounded() -> None:
    host, anna, _ = three()
    stranger = Replica(
        identity=anna.identity, self_name="anna", log=replay(SESSION, host.log.entries), key=KEY, entropy=entropy("z")
    )
    stranger.self_name = "zoe"
    stranger.log._entries += stranger.log._entries * 3
    for number in range(3 * MOST_MESSAGES):
        assert host.receive(stranger.write(go(number))) is None
        anna.write(go(number))
    assert len(host._early) == MOST_MESSAGES
    assert len(anna._sent) == KEPT_MESSAGES
    for _ in range(20):
        host.receive(ring_pb2.Sealed(key=99, ciphertext=entropy("junk")(MOST_BYTES // 5)).SerializeToString())
    assert host._early.held_bytes <= MOST_BYTES
    assert host.receive(anna.write(go(7))) == [MessageFrom("anna", go(7))]


def test_host_when_it_reads_votes_late_and_then_who_took_over_by_them_then_nobody_is_to_blame_yet() -> None:
    village = Village("anna", "ben", "carl")
    missed = village["ben"].upkeep.vote("anna")
    for letter in missed.letters:
        village["host"].replica.receive(letter.sealed)  # whose answer is lost
    village.do("ben", missed)
    village.do("anna", village["anna"].upkeep.vote("anna"))
    assert village["anna"].replica.is_host
    assert told(village["host"], Outvoted, lambda event: cast(Outvoted, event).name == "anna")
    assert "anna" in village["host"].names


def test_host_when_members_of_its_part_show_it_who_took_over_in_the_other_part_then_nobody_is_to_blame_yet() -> None:
    """The session was cut in two, most of the others voted, and the host answered their votes when it was too late."""
    cut = ("anna", "ben", "carl")
    village = Village(*cut, "dora", "eve")
    village.deaf = {"host", "dora", "eve"}
    missed = {name: village[name].upkeep.vote("anna") for name in ("ben", "carl", "anna")}
    for name, acts in missed.items():
        village.do(name, acts)
    assert village["anna"].replica.is_host
    village.deaf = set(cut)
    for letter in missed["ben"].letters:
        village.send(letter.sealed, to=("host",))
    village.send(village["anna"].replica.write_entries(), to=("dora", "eve"))
    assert told(village["dora"], WentAstray)
    assert told(village["host"], Outvoted, lambda event: cast(Outvoted, event).name == "anna")
    assert "anna" in village["host"].names
