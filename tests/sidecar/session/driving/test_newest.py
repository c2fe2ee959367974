"""Words about the same thing that come in another order than they were said."""

import pytest

from kafila_sidecar.session.coordination import messages
from kafila_sidecar.session.coordination.edges import FormedLink
from kafila_sidecar.session.driving.newest import Newest

UP = messages.Linked("bob", FormedLink("direct", 0.01, 0.0, 0.0))
DOWN = messages.Unlinked("bob")
LOST = messages.Lost("bob")
FETCHES = messages.Doing(3, "fetching", 1, 2)
READY = messages.Doing(3, "ready", 2, 2)
CASES = {
    "a link that stands again": (UP, DOWN, True),
    "a link that is down again": (DOWN, UP, True),
    "progress": (READY, FETCHES, True),
    "who is reached again": (UP, LOST, True),
    "who was lost while its link was down": (DOWN, LOST, False),
    "another link": (UP, messages.Unlinked("cyd"), False),
    "another thing": (UP, READY, False),
    "what happened": (UP, messages.Goodbye(), False),
}


@pytest.mark.parametrize(("later", "earlier", "is_old"), CASES.values(), ids=CASES)
def test_word_when_a_later_one_came_first_then_it_is_old_if_that_was_about_the_same(
    later: messages.Said, earlier: messages.Said, is_old: bool
) -> None:
    newest = Newest()
    assert not newest.is_old("ada", later, 9)
    assert newest.is_old("ada", earlier, 4) is is_old
    assert not newest.is_old("dan", earlier, 4)


@pytest.mark.parametrize("word", [UP, DOWN, LOST, FETCHES])
def test_words_when_they_come_in_order_then_each_counts(word: messages.Said) -> None:
    newest = Newest()
    assert not any(newest.is_old("ada", said, number) for number, said in enumerate((UP, DOWN, word, UP), start=1))


def test_member_when_it_came_back_then_it_counts_anew() -> None:
    newest = Newest()
    newest.is_old("ada", UP, 40)
    newest.members(["bob"])
    newest.members(["bob", "ada"])
    assert not newest.is_old("ada", DOWN, 1)
