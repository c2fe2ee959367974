"""A host that may have been replaced asks who is with it, once for each proof, and stays only with most of those of
whom the votes were a majority."""

import contextlib
from collections.abc import Callable

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied
from kafila_sidecar.session.channel.events import KnowsItIsOut, Outvoted, WentAstray
from kafila_sidecar.session.channel.following import Following
from kafila_sidecar.session.channel.upkeep import Acts
from kafila_sidecar.session.membership.rivals import LeftBehind
from kafila_sidecar.session.membership.roll import are_most_here
from tests.sidecar.session.trust_world import go
from tests.sidecar.session.village import Village, told


def cut_apart() -> tuple[Village, ring_pb2.SignedEntry]:
    """Anna took over with the vote of ben, who heard no more of it and is still cut off with her; and the entry by
    which she did."""
    village = Village("anna", "ben", "carl")
    village.deaf = {"host", "carl"}
    village.do("ben", village["ben"].upkeep.vote("anna"))
    village.deaf.add("ben")
    village.do("anna", village["anna"].upkeep.vote("anna"))
    assert village["anna"].replica.is_host
    village.deaf = {"anna", "ben"}
    return village, village["anna"].replica.log.entries[-1]


def following_of(village: Village, done: list[object]) -> Following:
    def perform(acts: Acts) -> None:
        done.append(acts)
        village.do("host", acts)

    host = village["host"]
    return Following(replica=host.replica, upkeep=host.upkeep, perform=perform, give_way=done.append)


async def test_host_when_most_are_with_it_then_it_asks_once_for_each_proof() -> None:
    village, entry = cut_apart()
    done: list[object] = []
    following = following_of(village, done)
    village.deaf = {"anna"}  # ben heard the host again, and is with it
    village.say("ben", go(1))
    first, other = Outvoted("anna", (entry,)), Outvoted("anna", (village["host"].replica.log.entries[0],))
    following.begin(first)
    following.begin(first)
    assert len(done) == 1  # it is under way
    following.end()
    following._yield_or_stay(first)
    assert not village["host"].replica.log.member("anna")
    following.begin(first)
    assert len(done) == 3
    assert not following.is_under_way
    following.begin(other)
    assert following.is_under_way
    following.end()


async def test_host_when_only_who_came_since_is_with_it_besides_those_who_were_cut_off_too_then_it_gives_way() -> None:
    village, entry = cut_apart()
    done: list[object] = []
    following = following_of(village, done)
    for name in ("dora", "eve"):
        village.join(name)
    following.begin(Outvoted("anna", (entry,)))
    assert village["host"].replica.present == {"carl", "dora", "eve"}
    following.end()
    following._yield_or_stay(Outvoted("anna", (entry,)))
    assert isinstance(done[-1], LeftBehind)
    assert village["host"].replica.log.member("anna")


@pytest.mark.parametrize("knows", [False, True])
async def test_host_when_it_puts_out_a_voter_until_one_other_is_left_then_it_may_be_outvoted_all_the_same(
    knows: bool,
) -> None:
    village = Village("anna", "ben")
    village.deaf = {"host"}
    village.do("ben", village["ben"].upkeep.vote("anna"))
    village.do("anna", village["anna"].upkeep.vote("anna"))
    entry = village["anna"].replica.log.entries[-1]
    village.deaf = {"anna", "ben"}
    host = village["host"].replica
    village.do("host", village["host"].upkeep.remove("ben", "removed"))
    assert host._intake.take([entry], "anna") == [Outvoted("anna", (entry,))]
    if knows:
        host.log.follows(host.log.former("ben").member, len(host.log), host.log.head)  # type: ignore[union-attr]
    done: list[object] = []
    following = following_of(village, done)
    following.begin(Outvoted("anna", (entry,)))
    following.end()
    following._yield_or_stay(Outvoted("anna", (entry,)))
    assert isinstance(done[-1], LeftBehind) is not knows
    assert (host.log.member("anna") is None) is knows  # nobody can vote with her any more


@pytest.mark.parametrize("put_out", [("anna",), ("anna", "carl")])
def test_host_when_it_was_succeeded_and_has_a_key_of_its_own_by_now_then_it_hears_so_from_who_is_with_the_successor(
    put_out: tuple[str, ...],
) -> None:
    """Whom it writes to can read nothing that is for all; with a longer history, too."""
    village = Village("anna", "ben", "carl")
    village.deaf = {"host", "carl"}
    village.do("ben", village["ben"].upkeep.vote("anna"))
    village.do("anna", village["anna"].upkeep.vote("anna"))
    host, ben = village["host"].replica, village["ben"].replica
    assert ben.log.host == "anna"
    village.deaf = {"anna", "ben"}
    for name in put_out:
        village.do("host", village["host"].upkeep.remove(name, "lost"))
    (reader,) = (one for one in host.members if one.name == "ben")
    for sealed in host.repeat_for(reader):
        with contextlib.suppress(Denied):
            ben.receive(sealed)
    told_to = ben.take_letters()
    assert {one.name for one, _ in told_to} == {"host"}
    events = [event for _, letter in told_to for event in host.receive(letter) or []]
    assert [event.name for event in events if isinstance(event, Outvoted)][:1] == ["anna"]


def _heard_again(village: Village) -> None:
    """Ben is with the host, whatever it voted."""


def _came_back(village: Village) -> None:
    host = village["host"]
    village.do("host", host.upkeep.take_back(host.replica.log.now.members["ben"], 9))


def _left(village: Village) -> None:
    village.do("host", village["host"].upkeep.remove("ben", "left"))


def _was_put_out(village: Village) -> None:
    village.do("host", village["host"].upkeep.remove("ben", "removed"))


def _heard_that_it_is_out(village: Village) -> None:
    village.deaf.discard("ben")
    _was_put_out(village)
    village.goodbye("ben")


def _came_back_after_the_host_answered(village: Village) -> None:
    village["host"].replica.ballots.stood(1)
    _came_back(village)


def _came_back_before_the_host_answered(village: Village) -> None:
    """When the successor may have taken over before it heard that, and nobody could say so."""
    _came_back(village)
    village["host"].replica.ballots.stood(1)


@pytest.mark.parametrize(
    ("of_ben", "is_present", "stays"),
    [
        (_heard_again, True, True),
        (_heard_again, False, False),
        (_came_back, True, False),  # it does not know what became of its vote
        (_came_back_before_the_host_answered, True, False),
        (_came_back_after_the_host_answered, True, True),
        (_left, False, True),
        (_was_put_out, False, False),
        (_heard_that_it_is_out, False, True),
    ],
)
def test_host_when_carl_and_perhaps_ben_are_with_it_then_it_stays_with_most_of_those_who_could_vote(
    of_ben: Callable[[Village], None], is_present: bool, stays: bool
) -> None:
    village, entry = cut_apart()
    of_ben(village)
    present = {"carl"} | ({"ben"} if is_present else set())
    rival, host = ring_pb2.LogEntry.FromString(entry.entry), village["host"].replica
    assert are_most_here(host.log, me="host", present=present, rival=rival, stood=host.stood) is stays


@pytest.mark.parametrize("goes_on", [False, True])
def test_successor_when_it_kept_votes_until_the_voters_came_back_then_its_own_word_stands_against_it(
    goes_on: bool,
) -> None:
    """It had gone on with the host meanwhile."""
    village = Village("anna", "ben", "carl")
    host, anna = village["host"].replica, village["anna"]
    rival = ring_pb2.LogEntry(index=len(host.log), taken_over=ring_pb2.TakenOver(successor="anna"))
    rival.taken_over.ballots.extend(ring_pb2.Ballot(voter=name) for name in ("ben", "carl"))
    for name in ("ben", "carl"):
        village.do("host", village["host"].upkeep.take_back(host.log.now.members[name], 9))
    if goes_on:
        village.say("anna", go(1))
    assert anna.names == village["host"].names
    assert are_most_here(host.log, me="host", present={"ben", "carl"}, rival=rival, stood={}) is goes_on


def test_host_when_its_only_member_of_then_took_over_alone_then_that_one_is_no_majority() -> None:
    village = Village("anna")
    log = village["host"].replica.log
    rival = ring_pb2.LogEntry(index=len(log), taken_over=ring_pb2.TakenOver(successor="anna"))
    village.deaf.add("anna")
    village.join("dora")
    assert are_most_here(log, me="host", present={"dora"}, rival=rival, stood={})


@pytest.mark.parametrize("reason", ["lost", "removed"])
def test_who_was_removed_when_it_says_that_it_knows_then_the_host_is_told_once(reason: str) -> None:
    village = Village("anna", "ben")
    village.deaf.add("ben")
    before = village["ben"].upkeep.write(go(1))
    village.do("host", village["host"].upkeep.remove("ben", reason))
    village.deaf.discard("ben")
    village.do("ben", before)
    assert not told(village["host"], KnowsItIsOut)  # it was said before; the host answers how the log went on
    assert not village["ben"].replica.is_member
    for _ in range(2):
        village.goodbye("ben")
    assert told(village["host"], KnowsItIsOut) == [KnowsItIsOut("ben")]
    assert not told(village["anna"], KnowsItIsOut)
    assert not told(village["host"], WentAstray)
