"""Which mailbox a member has in the present room, by rows and by a law."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_proto import ring_pb2
from kafila_sidecar.session.channel.whereabouts import MOVES_PER_HOST, Whereabouts
from kafila_sidecar.session.membership.log import LONGEST_LOG
from tests.sidecar.session.driver_world import member

ADA, BOB, CYD = (member(name, index) for index, name in enumerate(("ada", "bob", "cyd")))


def moved(number: int, since: int = 3, *residents: tuple[int, int]) -> ring_pb2.Moved:
    told = [ring_pb2.Resident(member=index, mailbox=mailbox) for index, mailbox in residents]
    return ring_pb2.Moved(number=number, since=since, at_host=True, residents=told)


def test_mailbox_when_the_room_never_moved_then_the_one_that_the_log_names() -> None:
    assert [one.mailbox for one in Whereabouts("").settled((ADA, BOB))] == [1, 2]


def test_mailbox_when_the_room_moved_then_only_of_those_who_are_known_to_have_come() -> None:
    where = Whereabouts("ada")
    where.moved(moved(1, 3, (1, 70)), "bob")
    assert [where.mailbox_of(one) for one in (ADA, BOB, CYD)] == [None, 70, None]
    where.came(CYD.index, 1, 71)
    assert where.mailbox_of(CYD) == 71
    assert where.mailbox_of(member("dan", 3)) == 4
    assert where.keeper == "bob"


@pytest.mark.parametrize("first", ["word", "move"])
def test_word_of_a_member_when_it_comes_before_or_after_the_move_then_it_counts(first: str) -> None:
    where = Whereabouts("")
    if first == "word":
        where.came(CYD.index, 1, 71)
    where.moved(moved(1), "bob")
    if first == "move":
        where.came(CYD.index, 1, 71)
    assert where.mailbox_of(CYD) == 71


def test_word_when_it_is_of_an_earlier_move_or_of_nobody_then_it_changes_nothing() -> None:
    where = Whereabouts("")
    where.moved(moved(2), "bob")
    where.came(CYD.index, 2, 71)
    where.came(CYD.index, 1, 5)
    where.came(CYD.index, 2, 0)
    where.came(LONGEST_LOG, 2, 9)
    assert where.mailbox_of(CYD) == 71


MOVES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(1, 99)), max_size=12)


@given(words=MOVES, moves=st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True))
def test_mailbox_when_words_and_moves_come_in_any_order_then_it_is_of_the_present_room_or_not_known(
    words: list[tuple[int, int, int]], moves: list[int]
) -> None:
    where = Whereabouts("")
    for number, index, mailbox in words:
        where.came(index, number, mailbox)
    for number in sorted(moves):
        where.moved(moved(number, since=9), "bob")
    told = {(number, index): mailbox for number, index, mailbox in words}
    for index in range(5):
        found = where.mailbox_of(member("x", index))
        assert found is None or (where.number, index) in told
        assert where.next_number(0) > where.number


@given(lie=st.integers(1, 10**7), heard=st.booleans(), takeovers=st.integers(0, 50))
def test_number_when_a_host_has_said_the_highest_that_it_may_then_its_successor_s_is_above(
    lie: int, heard: bool, takeovers: int
) -> None:
    """Whether the successor has heard of it or not; and it is within what others take of the successor."""
    where = Whereabouts("")
    lie = min(lie, (takeovers + 1) * MOVES_PER_HOST)
    if heard:
        where.heard_of(moved(lie, since=0))
    assert lie < where.next_number(takeovers + 1) <= (takeovers + 2) * MOVES_PER_HOST
