import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.runtime.text.stop import StopStrings


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
