"""A member that missed any of the news, since it hung or was cut off: it catches up, or learns that it is out, and
whatever it does meanwhile is no bug."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.session.channel.events import Doubted, HostChanged, MemberRemoved, Outvoted
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.channel.upkeep import Letter
from kafila_sidecar.session.membership.identity import make_identity
from kafila_sidecar.session.membership.log import replay
from kafila_sidecar.session.membership.rivals import Forked, LeftBehind, Orphaned
from tests.sidecar.session.trust_world import SESSION, entropy, go, wish
from tests.sidecar.session.village import Village, Villager, told

NAMES = ("anna", "ben", "carl", "dora")
VICTIM = "ben"


class LossyVillage(Village):
    """Which messages reach the victim, in the order of sending, a test says; after those, all."""

    def __init__(self, arrives: Sequence[bool]) -> None:
        self.arrives: list[bool] = []
        super().__init__(*NAMES)
        self.arrives = list(arrives)

    def _deliver(self, sender: str, letter: Letter) -> None:
        readers = tuple(one for one in letter.readers if one.name != VICTIM or not self.arrives or self.arrives.pop(0))
        super()._deliver(sender, Letter(readers, letter.sealed))


def _host(village: Village) -> str:
    return next(name for name, one in village.people.items() if one.replica.is_host and name not in village.deaf)


def _join(village: Village) -> None:
    if "eve" not in village.people:
        village.join("eve", by=_host(village))


def _remove(name: str, reason: str) -> Callable[[Village], None]:
    def happens(village: Village) -> None:
        host = _host(village)
        village.do(host, village[host].upkeep.remove(name, reason))

    return happens


def _succeed(village: Village) -> None:
    """The host is lost, and everybody but the victim votes."""
    village.deaf.add("host")
    for name in village["anna"].names:
        if name not in ("host", VICTIM):
            village.do(name, village[name].upkeep.vote("anna"))


HAPPENINGS: dict[str, Callable[[Village], None]] = {
    "somebody says something": lambda village: village.say("carl", go(1)),
    "the victim says something": lambda village: village.say(VICTIM, go(1)),
    "the victim misses the host": lambda village: village.do(VICTIM, village[VICTIM].upkeep.vote("anna")),
    "a newcomer": _join,
    "dora is lost": _remove("dora", "lost"),
    "dora is kicked": _remove("dora", "removed"),
    "the victim is lost": _remove(VICTIM, "lost"),
    "the victim is kicked": _remove(VICTIM, "removed"),
    "the host is succeeded": _succeed,
    "locked": lambda village: village.do("host", village["host"].upkeep.lock(True)),
}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(HAPPENINGS)), min_size=1, max_size=8),
    st.lists(st.booleans(), max_size=40),
)
def test_member_when_it_missed_any_news_then_it_catches_up_or_learns_that_it_is_out(
    happenings: list[str], arrives: list[bool]
) -> None:
    village = LossyVillage(arrives)
    for what in happenings:
        try:
            HAPPENINGS[what](village)
        except KafilaError:
            continue  # it was said in words that this can't be now
    village.arrives.clear()
    village.returns(VICTIM)
    for number in range(32):
        village.say(VICTIM, go(number))
    victim = village[VICTIM]
    host = village[_host(village)]
    is_out = bool(told(victim, MemberRemoved, lambda event: event.name == VICTIM))  # type: ignore[attr-defined]
    assert is_out is (VICTIM not in host.names)
    assert is_out or victim.names == host.names


@pytest.mark.parametrize("reason", ["lost", "removed"])
def test_member_when_it_was_removed_while_it_hung_then_whatever_it_does_next_changes_nothing(reason: str) -> None:
    village = Village(*NAMES)
    village.do("host", village["host"].upkeep.remove(VICTIM, reason))
    victim = village[VICTIM]
    assert told(victim, MemberRemoved)
    assert victim.upkeep.vote("anna").letters == []
    assert victim.upkeep.settle([]).letters == []
    victim.replica.write_entries()
    village.say(VICTIM, go(1))
    assert victim.names == village["host"].names


def _come_back(village: Village, name: str) -> None:
    """Who was lost is there again, with what the host tells it at its door."""
    host, before = village["host"], village[name].replica
    former = host.replica.log.former(name)
    assert former is not None
    acts = host.upkeep.take_back(former.member, 9)
    log, key = replay(SESSION, host.replica.log.bare), host.replica.keys.key
    replica = Replica(identity=before.identity, self_name=name, log=log, key=key, entropy=entropy(name))
    village.people[name] = Villager(replica)
    village.do("host", acts)


@pytest.mark.parametrize("comes_back", [False, True])
def test_who_came_when_the_host_had_answered_a_doubt_before_then_its_vote_counts_all_the_same(comes_back: bool) -> None:
    """Of three, the two that are left are more than half of those without the host only together."""
    village = Village("anna", *([VICTIM] if comes_back else []))
    if comes_back:
        village.do("host", village["host"].upkeep.remove(VICTIM, "lost"))
    village.do("anna", village["anna"].upkeep.vote("anna"))
    if comes_back:
        _come_back(village, VICTIM)
    else:
        village.join(VICTIM)
    assert {village[name].replica.ballots.standing for name in village.people} == {1}
    village.deaf.add("host")
    for name in ("anna", VICTIM):
        village.do(name, village[name].upkeep.vote("anna"))
    assert village["anna"].replica.is_host
    assert village[VICTIM].replica.log.host == "anna"


@pytest.mark.parametrize("succeeded", [False, True])
def test_host_when_its_log_grew_before_it_hears_a_vote_then_that_is_a_doubt_once_if_it_is_one_of_it(
    succeeded: bool,
) -> None:
    """Its voter has ended the epoch, whatever became of the vote."""
    village = Village(*NAMES)
    missed = village["carl"].upkeep.vote("ben").letters
    if succeeded:
        village.goodbye("host")
    host = _host(village)
    for locked in (True, False):
        village.do(host, village[host].upkeep.lock(locked))
    later = village["carl"].upkeep.vote("ben").letters
    for letters, is_heard in ((missed, not succeeded), (later, True), (missed, True)):
        for letter in letters:
            village.send(letter.sealed, to=[host])
        assert told(village[host], Doubted) == ([Doubted("carl")] if is_heard else [])
    assert village[host].replica.ballots.voters == frozenset()
    assert village[host].replica.ballots.standing == 1


def test_host_when_it_slept_while_the_others_went_on_then_its_first_word_is_answered_by_how_the_log_went_on() -> None:
    village = Village(*NAMES)
    _succeed(village)
    village.deaf.discard("host")
    assert village["host"].replica.is_host
    village.say("host", go(1))
    assert told(village["host"], MemberRemoved, lambda event: event == MemberRemoved("host", "lost"))
    assert told(village["host"], HostChanged)
    assert not village["host"].replica.is_host


def test_host_when_it_put_out_its_successor_meanwhile_then_anybody_else_tells_it_how_the_log_went_on() -> None:
    """It was cut off, and heard too late whom it holds to be lost."""
    village = Village(*NAMES)
    _succeed(village)
    removed = village["host"].upkeep.remove("anna", "lost")
    village.deaf.discard("host")
    village.deaf.add("anna")
    village.do("host", village["host"].upkeep.call_the_roll())
    village.do("host", removed)
    assert "host" in village.forked()
    assert not village["host"].replica.present  # nobody who says so is with it


def test_roll_call_when_something_comes_that_was_written_before_then_it_is_no_answer() -> None:
    """It waited for a rendezvous, and may be as old as the absence of one."""
    village = Village(*NAMES)
    host, before = village["host"], village["carl"].upkeep.write(go(1))
    village.deaf.add("carl")
    village.do("host", host.upkeep.call_the_roll())
    village.deaf.discard("carl")
    village.do("carl", before)
    assert host.replica.present == {"anna", "ben", "dora"}
    village.do("host", host.upkeep.call_the_roll())
    assert host.replica.present == {*NAMES}


def _at_the_voted_out_host(village: Village, who: str) -> Replica:
    """The others have another host by now; this one does not know it, and takes somebody in."""
    _succeed(village)
    host = village["host"]
    if who == VICTIM:
        before = village[who].replica
        host.upkeep.take_back(host.replica.log.now.members[who], 9)
        identity = before.identity
    else:
        identity = make_identity()
        host.upkeep.admit(wish(who, identity), 9)
    log = replay(SESSION, host.replica.log.bare)
    return Replica(identity=identity, self_name=who, log=log, key=host.replica.keys.key, entropy=entropy(who))


@pytest.mark.parametrize(("who", "hears"), [(VICTIM, LeftBehind), ("eve", Orphaned)])
def test_host_when_it_gives_way_then_who_came_to_it_hears_why_and_goes_with_the_others(
    who: str, hears: type[Forked]
) -> None:
    """A newcomer is none of the others' members: it has to join them."""
    village = Village(*NAMES)
    guest, host = _at_the_voted_out_host(village, who), village["host"]
    with pytest.raises(LeftBehind) as left:
        host.replica.receive(village["anna"].replica.write_entries())
    [letter] = host.upkeep.give_way(left.value).letters
    with pytest.raises(hears):
        guest.receive(letter.sealed)


def test_member_when_it_heard_the_host_answer_votes_in_vain_then_the_host_s_own_word_undoes_that() -> None:
    village = Village(*NAMES)
    village.deaf = {"host", VICTIM}
    missed = village["dora"].upkeep.vote("anna")
    for name, acts in {"dora": missed, **{one: village[one].upkeep.vote("anna") for one in ("carl", "anna")}}.items():
        village.do(name, acts)
    assert village["anna"].replica.is_host
    village.deaf = {"anna", "carl", "dora"}
    for letter in missed.letters:
        village.send(letter.sealed, to=["host"])
    village.send(village["anna"].replica.write_entries(), to=["host", VICTIM])
    assert village[VICTIM].replica.log.host == "host"
    outvoted = told(village["host"], Outvoted)[0]
    assert isinstance(outvoted, Outvoted)
    village.do("host", village["host"].upkeep.give_way(LeftBehind("", outvoted.proof[0])))
    assert village[VICTIM].replica.log.host == "anna"


def test_host_when_it_put_out_its_successor_just_before_it_was_cut_off_then_it_asks_who_is_with_it() -> None:
    """By its own log those who went on are no majority."""
    village = Village(*NAMES, "eve")
    village.deaf.add("host")
    village["host"].upkeep.remove("anna", "lost")
    for name in ("ben", "carl", "anna"):
        village.do(name, village[name].upkeep.vote("anna"))
    assert village["anna"].replica.is_host
    [event] = village["host"].replica._intake.take(village["ben"].replica.log.entries[-1:], "ben")
    assert isinstance(event, Outvoted)
