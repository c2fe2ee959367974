"""Which kept sequence a request goes on with, and which ones make room."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.serving.keeping.kept import LEAST_TOKENS, Beginning, Kept, KeptSequences

LONG = list(range(100))


def kept(*ones: Kept, most: int = 4, forgets: bool = True) -> KeptSequences:
    made = KeptSequences(most=most, forgets=forgets)
    for one in ones:
        made.keep(one)
    return made


ROWS: dict[str, tuple[Sequence[int], bool, Beginning | None]] = {
    "all of it and more": ([*LONG, 7, 8], True, Beginning(1, 100)),
    "the same text": (LONG, True, Beginning(1, 99)),
    "parts half-way": ([*LONG[:60], 500, *LONG], True, Beginning(1, 60)),
    "less than half of it": ([*LONG[:49], 500, 501], True, None),
    "another text": ([500, *LONG], True, None),
    "all of it where caches can't forget": ([*LONG, 7], False, Beginning(1, 100)),
    "the same text where caches can't forget": (LONG, False, None),
    "parts where caches can't forget": ([*LONG[:60], 500], False, None),
}


@pytest.mark.parametrize("name", ROWS)
def test_take_when_a_request_begins_likewise_then_as_much_as_can_be_used(name: str) -> None:
    tokens, forgets, expected = ROWS[name]
    made = kept(Kept(1, "ada", LONG), forgets=forgets)
    assert made.take("ada", tokens, running=0) == expected
    assert len(made) == (expected is None)


def test_take_when_another_members_sequence_begins_likewise_then_none() -> None:
    made = kept(Kept(1, "ada", LONG))
    assert made.take("bob", [*LONG, 1], running=0) is None
    assert made.take("", [*LONG, 1], running=0) is None
    assert made.take("ada", [*LONG, 1], running=0) == Beginning(1, 100)


def test_take_when_several_begin_likewise_then_the_one_with_most() -> None:
    made = kept(Kept(1, "ada", LONG[:40]), Kept(2, "ada", LONG[:80]), Kept(3, "ada", LONG[:60]))
    assert made.take("ada", LONG, running=0) == Beginning(2, 80)


def test_take_when_it_would_have_to_go_anyway_then_the_little_that_is_common_is_used() -> None:
    made = kept(Kept(1, "ada", LONG), Kept(2, "bob", LONG), most=2)
    assert made.take("ada", LONG[:30], running=0) == Beginning(1, 29)


def test_keep_when_a_sequence_is_short_then_it_is_not_worth_it() -> None:
    assert not kept().keep(Kept(1, "ada", LONG[: LEAST_TOKENS - 1]))
    assert kept().keep(Kept(1, "ada", LONG[:LEAST_TOKENS]))


def test_make_room_when_sequences_come_then_the_one_used_longest_ago_goes() -> None:
    made = kept(Kept(1, "ada", LONG), Kept(2, "bob", LONG), Kept(3, "ada", LONG[:50]), most=3)
    assert made.take("ada", LONG, running=0) == Beginning(1, 99)
    made.keep(Kept(1, "ada", LONG))
    assert made.make_room(running=1) == [2]
    assert made.make_room(running=3) == [3, 1]
    assert made.make_room(running=3) == []


@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.booleans())))
def test_sequences_when_requests_come_and_end_then_never_more_than_there_is_room_for(
    most: int, asked: list[tuple[str, int, bool]]
) -> None:
    made, running = KeptSequences(most=most, forgets=True), dict[int, Kept]()
    for number, (asker, text, ends) in enumerate(asked):
        if (ends and running) or len(running) == most:
            made.keep(running.pop(next(iter(running))))
        tokens = [text] * (20 * (1 + number % 3))
        begins = made.take(asker, tokens, running=len(running)) or Beginning(1000 + number)
        assert begins.sequence not in running
        running[begins.sequence] = Kept(begins.sequence, asker, tokens)
        made.make_room(running=len(running))
        assert len(running) + len(made) <= most
