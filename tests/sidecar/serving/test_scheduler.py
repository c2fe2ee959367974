"""Who runs and who waits: members in turns, each first come, first served, whatever comes and goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_planner.model.first_token import chunks_of
from kafila_sidecar.errors import Exhausted
from kafila_sidecar.serving.running.runner import _divided
from kafila_sidecar.serving.scheduler import ChunkPace, Scheduler


def waiting(*requests: int, most_running: int = 1, most_waiting: int = 512) -> Scheduler:
    scheduler = Scheduler(most_running=most_running, most_waiting=most_waiting)
    for request in requests:
        scheduler.add(request)
    return scheduler


def test_due_when_more_come_than_run_then_the_rest_follows_in_order() -> None:
    scheduler = waiting(*range(6), most_running=2)
    order = scheduler.due()
    assert order == [0, 1]
    for ended in (1, 0, 2, 3, 4, 5):
        scheduler.remove(ended)
        order += scheduler.due()
    assert order == [0, 1, 2, 3, 4, 5]


def test_due_when_one_member_asks_a_hundred_times_then_another_waits_for_one_of_them() -> None:
    scheduler = Scheduler(most_running=1)
    for request in range(100):
        scheduler.add(request, asker="ada")
    assert scheduler.due() == [0]
    scheduler.add(100, asker="bob")
    scheduler.add(101, asker="bob")
    order: list[int] = []
    for _ in range(5):
        for request in [0, *order][-1:]:
            scheduler.remove(request)
        order += scheduler.due()
    assert order == [100, 1, 101, 2, 3]


def test_due_when_several_run_then_the_places_are_shared_out() -> None:
    scheduler = Scheduler(most_running=4)
    for request in range(6):
        scheduler.add(request, asker="ada")
    for request in range(6, 9):
        scheduler.add(request, asker="bob")
    assert scheduler.due() == [0, 6, 1, 7]


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40), st.integers(1, 5))
def test_due_when_all_come_at_once_then_each_members_own_run_in_order(askers: list[str], most_running: int) -> None:
    scheduler = Scheduler(most_running=most_running)
    for request, asker in enumerate(askers):
        scheduler.add(request, asker=asker)
    order: list[int] = []
    while due := scheduler.due():
        order += due
        scheduler.remove(order[len(order) - len(due)])
    assert sorted(order) == list(range(len(askers)))
    for asker in set(askers):
        own = [request for request in order if askers[request] == asker]
        assert own == sorted(own)


def test_due_when_a_waiting_one_is_given_up_then_its_turn_passes_on() -> None:
    scheduler = waiting(0, 1, 2)
    assert scheduler.due() == [0]
    scheduler.remove(1)
    scheduler.remove(0)
    assert scheduler.due() == [2]
    scheduler.remove(2)
    scheduler.add(3)
    assert scheduler.due() == [3]


def test_due_when_asked_again_then_nobody_runs_twice() -> None:
    scheduler = waiting(0, 1, most_running=5)
    assert (scheduler.due(), scheduler.due()) == ([0, 1], [])


def test_remove_when_said_twice_or_of_a_stranger_then_nothing_changes() -> None:
    scheduler = waiting(0, 1, 2)
    assert scheduler.due() == [0]
    for stranger in (7, 7):
        scheduler.remove(stranger)
    assert scheduler.due() == []
    for _ in range(2):
        scheduler.remove(0)
    assert scheduler.due() == [1]


def test_add_when_the_queue_is_full_then_refused_and_later_taken() -> None:
    scheduler = waiting(0, most_waiting=3)
    scheduler.due()
    for request in (1, 2, 3):
        scheduler.add(request)
    with pytest.raises(Exhausted, match="3 requests"):
        scheduler.add(4)
    scheduler.remove(0)
    assert scheduler.due() == [1]
    scheduler.add(9)
    order: list[int] = []
    for ended in (1, 2, 3, 9):
        scheduler.remove(ended)
        order += scheduler.due()
    assert order == [2, 3, 9]


@given(
    st.integers(1, 4), st.integers(0, 5), st.lists(st.sampled_from(["add", "end", "give up"]), max_size=60), st.data()
)
def test_scheduler_when_anything_comes_and_goes_then_bounds_and_order_hold(
    most_running: int, most_waiting: int, steps: list[str], data: st.DataObject
) -> None:
    scheduler = Scheduler(most_running=most_running, most_waiting=most_waiting)
    running, queue, began = set[int](), list[int](), list[int]()
    for request, step in enumerate(steps):
        if step == "add" and len(queue) >= most_waiting:
            with pytest.raises(Exhausted):
                scheduler.add(request)
        elif step == "add":
            scheduler.add(request)
            queue.append(request)
        elif step == "end" and running:
            ended = data.draw(st.sampled_from(sorted(running)))
            running.discard(ended)
            scheduler.remove(ended)
        elif step == "give up" and queue:
            scheduler.remove(queue.pop(data.draw(st.integers(0, len(queue) - 1))))
        turns = scheduler.due()
        assert turns == queue[: len(turns)]
        queue = queue[len(turns) :]
        running.update(turns)
        began += turns
        assert len(running) == most_running or not queue
        assert len(running) <= most_running
    assert began == sorted(began)


def test_turn_when_a_request_had_begun_before_then_it_comes_before_those_that_had_not() -> None:
    scheduler = Scheduler(most_running=1)
    for request, has_begun in ((1, False), (2, False), (3, True), (4, False), (5, True)):
        scheduler.add(request, has_begun=has_begun)
    turns = []
    while due := scheduler.due():
        turns += due
        scheduler.remove(due[0])
    assert turns == [3, 5, 1, 2, 4]


@given(
    most=st.integers(1, 512),
    ran=st.lists(st.tuples(st.booleans(), st.integers(1, 512), st.floats(1e-6, 10.0)), max_size=20),
    among=st.integers(1, 8),
    best=st.integers(1, 1024),
)
def test_chunk_when_anything_ran_then_at_least_one_token_and_at_most_the_agreed(
    most: int, ran: list[tuple[bool, int, float]], among: int, best: int
) -> None:
    pace = ChunkPace(most, lambda _: best)
    for is_chunk, tokens, seconds in ran:
        if is_chunk:
            pace.ran_chunk(tokens, seconds)
        else:
            pace.ran_step(seconds)
    assert 1 <= pace.tokens(1000, among=among) <= min(best, most)
    assert pace.tokens(1000, among=1) == min(best, most)


def test_chunk_when_others_decode_then_with_a_run_of_theirs_as_long_as_four_of_them() -> None:
    pace = ChunkPace(512, {600: 512, 300: 128}.__getitem__)
    pace.ran_chunk(100, 1.0)
    pace.ran_step(0.1)
    assert pace.tokens(600, among=2) == 30
    pace.ran_step(0.001)
    assert pace.tokens(600, among=2) == 16
    assert [pace.tokens(whole, among=1) for whole in (600, 300)] == [512, 128]


def test_chunk_when_the_plan_allows_fewer_beside_decoders_then_so_many_before_anything_ran() -> None:
    pace = ChunkPace(512, lambda _: 512, beside=100)
    assert [pace.tokens(600, among=among) for among in (1, 2)] == [512, 100]
    pace.ran_chunk(100, 0.1)
    pace.ran_step(0.01)
    assert pace.tokens(600, among=2) == 30
    pace.ran_step(1.0)
    assert pace.tokens(600, among=2) == 100


@given(tokens=st.integers(1, 3000), size=st.integers(1, 512))
def test_chunks_when_a_prompt_is_divided_then_as_the_plans_time_to_the_first_token_has_them(
    tokens: int, size: int
) -> None:
    left, chunks = list(range(tokens)), list[int]()
    while left:
        chunk, left = _divided(left, size)
        chunks.append(len(chunk))
    assert chunks == list(chunks_of(tokens, size))
