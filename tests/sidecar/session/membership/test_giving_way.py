"""A member that takes over in the moment in which the host answers those votes: it learns that the others stayed, gives
way, and may come back."""

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.session.channel.events import MemberRemoved, WentAstray
from kafila_sidecar.session.membership.rivals import LeftBehind
from tests.sidecar.session.trust_world import go
from tests.sidecar.session.village import Village, told

OTHERS = ("ben", "carl", "dora")


def _took_over_too_late(village: Village) -> ring_pb2.SignedEntry:
    """Anna hears votes, and not the host's answer. The entry by which she takes over reaches nobody yet."""
    missed = {name: village[name].upkeep.vote("anna") for name in ("ben", "carl")}
    village.deaf = {"anna"}
    for name, acts in missed.items():
        village.do(name, acts)
    for name, acts in missed.items():
        for letter in acts.letters:
            village[name].replica.ballots.host_spoke()
            village["anna"].replica.receive(letter.sealed)
    village["anna"].upkeep.vote("anna")
    village.deaf = set()
    assert village["anna"].replica.is_host
    return village["anna"].replica.log.entries[-1]


def _show(village: Village, *readers: str) -> None:
    """Only these hear of it, and of one another."""
    village.deaf = set(OTHERS) - set(readers)
    village.send(village["anna"].replica.write_entries(), to=readers)


def test_successor_when_most_others_show_its_entry_back_then_it_gives_way() -> None:
    village = Village("anna", *OTHERS)
    _took_over_too_late(village)
    _show(village, "ben")
    assert village["anna"].refused == []  # one of three may be wrong
    _show(village, "carl")
    assert [type(error) for error in village["anna"].refused] == [LeftBehind]


def test_successor_when_who_refused_it_follows_it_after_all_then_it_stays() -> None:
    village = Village("anna", *OTHERS)
    entry = _took_over_too_late(village)
    _show(village, "ben")
    village.do("host", village["host"].upkeep.give_way(LeftBehind("", entry)))
    assert village["ben"].replica.log.host == "anna"
    village.say("ben", go(1))
    _show(village, "carl")
    assert told(village["carl"], WentAstray)
    assert village.forked() == set()


@pytest.mark.parametrize("resigned", [False, True])
def test_host_when_somebody_took_over_from_an_earlier_one_then_its_own_standing_excuses_nobody(resigned: bool) -> None:
    village = Village("anna", *OTHERS)
    if resigned:
        village.deaf = set(OTHERS)
        village.goodbye("host")
        entry = village["anna"].replica.log.entries[-1]
    else:
        entry = _took_over_too_late(village)
    village.deaf = {"anna", "host"}
    for name in ("carl", "dora", "ben"):
        village.do(name, village[name].upkeep.vote("ben"))
    ben = village["ben"]
    assert ben.replica.is_host
    ben.replica.ballots.stood(2)
    village.do("ben", ben.upkeep.settle([WentAstray("anna", (entry,))]))
    assert MemberRemoved("anna", "removed") in ben.told


def test_host_when_most_stayed_then_who_took_over_may_come_back_and_its_entry_counts_no_more() -> None:
    village = Village("anna", *OTHERS)
    entry = _took_over_too_late(village)
    _show(village, *OTHERS)
    host = village["host"]
    village.do("host", host.upkeep.settle([WentAstray("anna", (entry,))]))
    assert MemberRemoved("anna", "lost") in host.told
    anna = host.replica.log.former("anna")
    assert anna is not None
    village.do("host", host.upkeep.take_back(anna.member, 9))
    for reader in ("host", *OTHERS):
        assert village[reader].replica._intake.take([entry], "ben") == []
    assert all("anna" in village[reader].names for reader in ("host", *OTHERS))
