"""What a stage runs next: laws over any order of coming."""

from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.serving.gathering import Gathering, InLine

STEPS = st.tuples(st.integers(1, 6), st.sampled_from([1, 1, 1, 3, 40]))
COMING = st.lists(st.one_of(STEPS, st.none()), max_size=60)  # a step or chunk comes, or (None) a run is made


def waiting(sequence: int, tokens: int, number: int = 0) -> InLine[int]:
    return InLine(sequence, tokens, tokens > 8, number)


@given(coming=COMING, most_rows=st.integers(1, 4))
def test_runs_when_anything_comes_in_any_order_then_each_runs_once_and_each_sequence_in_order(
    coming: list[tuple[int, int] | None], most_rows: int
) -> None:
    line, came, ran = Gathering[int](), list[InLine[int]](), list[InLine[int]]()

    def run() -> bool:
        made = line.next(most_rows)
        assert len(made) <= most_rows
        assert len({one.sequence for one in made}) == len(made)
        assert len({one.tokens for one in made}) <= 1
        assert len(made) <= 1 or not any(one.is_chunk for one in made)
        ran.extend(made)
        return bool(made)

    for number, one in enumerate(coming):
        if one is None:
            run()
        else:
            came.append(waiting(*one, number))
            line.add(came[-1])
    while run():
        pass
    assert len(line) == 0
    for sequence in range(1, 7):
        assert [one for one in ran if one.sequence == sequence] == [one for one in came if one.sequence == sequence]
    assert len(ran) == len(came)


def test_runs_when_steps_and_chunks_wait_then_they_take_turns() -> None:
    line = Gathering[int]()
    for number in range(3):
        line.add(waiting(9, 40, number))
    kinds = []
    for _ in range(6):
        line.add(waiting(1, 1))
        kinds.append(line.next(4)[0].is_chunk)
        line.drop(1)
    assert kinds == [False, True, False, True, False, True]


def test_runs_when_more_wait_than_fit_then_who_was_left_out_comes_first_next_time() -> None:
    line = Gathering[int]()
    for sequence in (1, 2, 3):
        line.add(waiting(sequence, 1))
    assert [one.sequence for one in line.next(2)] == [1, 2]
    line.add(waiting(1, 1))
    assert [one.sequence for one in line.next(2)] == [3, 1]


def test_line_when_a_sequence_is_dropped_then_nothing_of_it_runs() -> None:
    line = Gathering[int]()
    line.add(waiting(1, 40))
    line.add(waiting(1, 1))
    line.add(waiting(2, 1))
    assert len(line.drop(1)) == 2
    assert [one.sequence for one in line.next(4)] == [2]
    assert line.next(4) == []
    assert line.tokens == 0


@given(coming=st.lists(STEPS, max_size=20), most_rows=st.integers(1, 4))
def test_run_when_it_is_said_to_be_full_then_it_has_all_its_rows_and_else_more_may_come(
    coming: list[tuple[int, int]], most_rows: int
) -> None:
    line = Gathering[int]()
    for one in coming:
        line.add(waiting(*one))
    chunks = any(one.is_chunk for one in line.first)
    is_full = line.fills(most_rows)
    run = line.next(most_rows)
    assert is_full == (len(run) == most_rows and not chunks)
