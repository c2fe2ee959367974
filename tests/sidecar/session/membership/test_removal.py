"""Who is removed learns nothing more; who stays, or comes back, misses nothing."""

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import KafilaError
from kafila_sidecar.session.channel.events import KnowsItIsOut, MemberRemoved, MessageFrom
from kafila_sidecar.session.membership.members import Gone
from tests.sidecar.session.trust_world import go, wish
from tests.sidecar.session.village import Village, told


def kick(village: Village, name: str) -> None:
    village.do("host", village["host"].upkeep.remove(name, "removed"))


def test_kick_when_done_then_the_others_talk_on_and_the_kicked_one_reads_nothing() -> None:
    village = Village("anna", "ben", "eve")
    kick(village, "eve")
    village.say("anna", go(1))
    for name in ("host", "ben"):
        assert told(village[name], MessageFrom) == [MessageFrom("anna", go(1))]
        assert village[name].names == ["host", "anna", "ben"]
    eve = village["eve"]
    assert told(eve, MemberRemoved) == [MemberRemoved("eve", "removed")]
    before = list(eve.told)
    village.send(village["anna"].replica.write(go(2)), ["eve"])
    for letter in village["host"].replica.repeat_for(village["host"].replica.members[1]):
        village.send(letter, ["eve"])
    assert eve.told == before


def test_kick_when_done_then_the_kicked_one_is_not_heard_whatever_it_writes() -> None:
    village = Village("anna", "ben", "eve")
    late = village["eve"].replica.write(go(1))
    kick(village, "eve")
    eve = village["eve"].replica
    village.send(late, ["host", "anna", "ben"])
    village.send(eve.write(go(2)), ["host", "anna", "ben"])
    for name in ("host", "anna", "ben"):
        assert told(village[name], MessageFrom) == []
        assert len(village[name].refused) + len(told(village[name], KnowsItIsOut)) == 2
    assert told(village["host"], KnowsItIsOut)  # all that is heard of it is that it knows


def test_kick_when_done_then_pairs_that_stay_share_what_the_kicked_one_never_knew() -> None:
    village = Village("anna", "eve")
    host, anna, eve = (village[name].replica for name in ("host", "anna", "eve"))
    before = host.keys.pair(host.members[1]).link
    kick(village, "eve")
    assert host.keys.pair(host.members[1]).link == anna.keys.pair(anna.members[0]).link == before
    known = {eve.keys.key, *(eve.keys.pair(member).link for member in eve.others)}
    assert before not in known
    assert host.keys.key not in known


def test_rejoin_when_kicked_with_the_same_certificate_then_refused() -> None:
    village = Village("eve")
    eve = village["eve"].replica.identity
    kick(village, "eve")
    host = village["host"].replica
    with pytest.raises(KafilaError, match="admitted before"):
        village["host"].upkeep.admit(wish("zoe", eve), 9)
    assert host.log.now.key_number == 2


def test_kick_when_a_member_was_away_then_it_hears_of_it_and_has_the_new_key_on_return() -> None:
    village = Village("anna", "ben", "eve", "zoe")
    village.deaf.add("ben")
    kick(village, "eve")
    kick(village, "zoe")
    village.say("anna", go(1))
    assert village["ben"].names == ["host", "anna", "ben", "eve", "zoe"]
    village.returns("ben")
    assert village["ben"].names == ["host", "anna", "ben"]
    assert told(village["ben"], MessageFrom) == [MessageFrom("anna", go(1))]
    village.say("ben", go(2))
    assert MessageFrom("ben", go(2)) in village["anna"].told


def test_kick_when_its_news_was_lost_on_the_way_then_the_next_message_brings_it() -> None:
    village = Village("anna", "ben", "eve", "zoe")
    village.deaf.add("ben")
    kick(village, "eve")
    kick(village, "zoe")
    village.deaf.discard("ben")
    village.say("anna", go(1))
    assert village["ben"].names == ["host", "anna", "ben"]
    assert told(village["ben"], MessageFrom) == [MessageFrom("anna", go(1))]
    assert village["ben"].replica.keys.key == village["host"].replica.keys.key


def test_entry_when_a_member_passes_it_on_without_the_key_then_it_waits_for_the_whole_one() -> None:
    village = Village("anna", "ben", "eve")
    village.deaf.add("ben")
    kick(village, "eve")
    village.deaf.discard("ben")
    (entry,) = village["anna"].replica.log.entries[-1:]
    anna, ben = village["anna"].replica, village["ben"].replica
    for key in (b"", b"\x00", ring_pb2.Rekey(ephemeral=bytes(32)).SerializeToString()):
        bare = ring_pb2.SignedEntry(entry=entry.entry, signature=entry.signature, rekey=key)
        said = ring_pb2.Control(entries=ring_pb2.LogEntries(entries=[bare]))
        village.send(anna._write(said, 1), ["ben"])
        assert ben.keys.number == ben.log.now.key_number == 1
    village.say("host", go(1))
    assert ben.keys.number == ben.log.now.key_number == 2


def test_key_when_members_come_and_go_then_all_hold_the_same() -> None:
    village = Village("anna", "ben")
    for round_ in range(8):
        village.join(f"guest{round_}")
        village.do("host", village["host"].upkeep.remove(f"guest{round_}", "left"))
        village.say(f"guest{round_}", go(round_))
    assert isinstance(village["ben"].replica.log.last_change, Gone)
    assert len({village[name].replica.keys.key for name in ("host", "anna", "ben")}) == 1
    assert village["host"].replica.log.now.key_number == 9
    carl = village.join("carl")
    assert carl.replica.keys.key == village["anna"].replica.keys.key
    village.say("carl", go(99))
    assert MessageFrom("carl", go(99)) in village["ben"].told


def test_replica_when_many_were_removed_then_nothing_of_them_is_kept() -> None:
    village = Village("anna")
    for number in range(30):
        village.join(f"guest{number}")
        village.say(f"guest{number}", go(number))
        kick(village, f"guest{number}")
    for name in ("host", "anna"):
        replica = village[name].replica
        assert len(replica._seen) <= 1
        assert len(replica._behind) <= 1
        assert len(replica.keys._pairs) <= 1
        assert len(replica.keys._group) <= 4
