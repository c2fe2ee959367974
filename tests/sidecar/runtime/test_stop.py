import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.text.stop import LONGEST_STOP, MOST_STOPS, StopStrings, _Match


@given(st.text("abé", max_size=30), st.lists(st.text("abé", min_size=1, max_size=4), max_size=3), st.data())
def test_text_when_fed_in_any_pieces_then_cut_at_the_stop_complete_first(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    machine, shown, rest = StopStrings(stops), "", text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        shown, rest = shown + machine.feed(rest[:size]), rest[size:]
    complete = min(((text.index(stop) + len(stop), text.index(stop)) for stop in stops if stop in text), default=None)
    assert machine.stopped == (complete is not None)
    assert shown + machine.finish() == (text if complete is None else text[: complete[1]])


@pytest.mark.parametrize(
    ("stops", "pieces", "shown"),
    [
        (["</s>"], ["Hello", " <", "/s", ">"], ["Hello", " ", "", ""]),
        (["</s>"], ["a <", "b"], ["a ", "<b"]),
        (["\n\n"], ["one\n", "two\n", "\nthree"], ["one", "\ntwo", ""]),
        (["", "x"], ["axb", "c"], ["a", ""]),
        (["🐫"], ["a ", "🐫 b"], ["a ", ""]),
        (["abc", "b"], ["abc"], ["a"]),
        (["bc", "abc"], ["x", "abc"], ["x", ""]),
        ([], ["all"], ["all"]),
    ],
)
def test_feed_when_a_stop_may_be_coming_then_its_beginning_is_held_back(
    stops: list[str], pieces: list[str], shown: list[str]
) -> None:
    machine = StopStrings(stops)
    assert [machine.feed(piece) for piece in pieces] == shown


@pytest.mark.parametrize("stops", [["x"] * (MOST_STOPS + 1), ["x" * (LONGEST_STOP + 1)]], ids=["many", "long"])
def test_stops_when_too_many_or_too_long_then_refused(stops: list[str]) -> None:
    with pytest.raises(InvalidInput, match="64 stop strings of 1000 characters"):
        StopStrings(stops)


def test_stops_when_as_many_and_as_long_as_are_taken_then_matched() -> None:
    stops = [f"{number:02}" + "x" * (LONGEST_STOP - 2) for number in range(MOST_STOPS)]
    machine = StopStrings(stops)
    assert machine.feed("a" + stops[-1] + "b") == "a"
    assert machine.stopped


def test_match_when_text_and_stop_repeat_then_few_steps_a_character() -> None:
    """Each character is compared at most twice, whatever came before."""

    class Counted(str):
        compared = 0

        def __ne__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__ne__(self, other)

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    match, text = _Match("a" * 999 + "b"), "a" * 5000
    for _ in text:
        assert not match.advance(Counted("a"))
    assert Counted.compared <= 4 * len(text)
