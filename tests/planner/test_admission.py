"""Who is refused, by how much, and what would fit instead."""

from dataclasses import replace

import pytest
from hypothesis import given

from kafila_planner import Plan, Refusal, make_plan, problem_from_json
from kafila_planner.model.types import Problem
from tests.planner.problems import GB, QUICK, Json, as_json, member, model, problem, problems, refusal, result

TIGHT = [member("A", memory_bytes=6 * GB), member("B", memory_bytes=5 * GB), member("C", memory_bytes=4 * GB)]
"""15 GB for 12 of blocks and 4 of head: one short."""


@pytest.mark.parametrize("objective", ["paper", "latency", "throughput"])
def test_refusal_when_only_the_sum_is_short_then_the_least_memory_and_the_sums_shortfall(objective: str) -> None:
    found = refusal(problem(TIGHT, objective=objective))
    assert (found.undersized, found.missing_bytes) == ("C", GB)
    assert "16 GB" in found.reason
    assert "15 GB" in found.reason


def test_refusal_when_all_must_take_part_then_who_can_not_hold_one_block_is_named() -> None:
    found = refusal(problem([member("A"), member("B", memory_bytes=GB // 4)]))
    assert (found.undersized, found.missing_bytes) == ("B", GB - GB // 4)


def test_refusal_when_reserve_takes_the_room_then_it_counts_as_missing() -> None:
    found = refusal(problem([member("A"), member("B", memory_bytes=GB)], reserve_bytes=GB // 2))
    assert (found.undersized, found.missing_bytes) == ("B", GB // 2)


def test_refusal_when_a_far_too_small_member_is_required_then_it_is_named() -> None:
    crowd = [member("A"), member("B", memory_bytes=1)]
    found = refusal(problem(crowd, objective="latency", require=["B"]))
    assert found.undersized == "B"
    assert isinstance(result(problem(crowd, objective="latency")), Plan)


def test_refusal_when_nobody_can_hold_the_head_then_the_nearest_is_named() -> None:
    crowd = [member("A", memory_bytes=3 * GB), member("B", memory_bytes=4 * GB)] + [
        member(name, memory_bytes=2 * GB) for name in "CDEFG"
    ]
    found = refusal(problem(crowd))
    assert (found.undersized, found.missing_bytes) == ("B", GB)


def test_refusal_when_alone_then_its_own_shortfall() -> None:
    found = refusal(problem([member("A", memory_bytes=10 * GB)], objective="latency"))
    assert (found.undersized, found.missing_bytes) == ("A", 6 * GB)


def test_refusal_when_memory_was_not_measured_then_it_says_so() -> None:
    found = refusal(problem([member("A"), member("B", memory_bytes=None)]))
    assert found.undersized == "B"
    assert "not measured" in found.reason


def test_refusal_when_whole_blocks_do_not_pack_then_the_bytes_of_the_blocks_left_over() -> None:
    """Three halves of a block are over, but no member has a whole one."""
    crowd = [member(name, memory_bytes=int(5.5 * GB)) for name in "ABC"]
    found = refusal(problem(crowd, model=model(embed_bytes=0, unembed_bytes=0, blocks=16)))
    assert found.missing_bytes == GB
    assert "pack" in found.reason


def test_refusal_when_told_as_json_then_it_has_the_interfaces_fields() -> None:
    told = as_json(problem(TIGHT))
    assert set(told) == {"admitted", "reason", "undersized", "missing_bytes", "suggestions"}
    assert told["admitted"] is False


def test_suggestions_when_context_and_users_fill_memory_then_less_of_each_fits() -> None:
    heavy = model(kv_bytes_per_token_per_block=100_000)
    found = refusal(problem([member("A", memory_bytes=20 * GB)], model=heavy, context_tokens=4096, concurrency=4))
    assert "a context of 768 tokens instead of 4096" in found.suggestions
    assert not any("concurrency" in suggestion for suggestion in found.suggestions), "one user alone needs 4.9 GB"
    lighter = refusal(problem([member("A", memory_bytes=26 * GB)], model=heavy, context_tokens=4096, concurrency=4))
    assert "a concurrency of 2 instead of 4" in lighter.suggestions


def test_suggestions_when_weights_are_the_trouble_then_quantising_or_a_machine() -> None:
    assert refusal(problem(TIGHT)).suggestions == (
        "a checkpoint quantised to 8 bits, if this one has 16",
        "one more machine that lends 1 GB",
    )


def test_suggestions_when_one_member_is_in_the_way_then_going_on_without_it() -> None:
    found = refusal(problem([member("A"), member("B", memory_bytes=GB // 4)]))
    assert "going on without B" in found.suggestions


def test_suggestions_when_nothing_helps_then_a_smaller_model() -> None:
    found = refusal(problem([member("A", memory_bytes=1)], strategy="uniform", model=model(blocks=1)))
    assert found.suggestions == ("a smaller model",)


@QUICK
@given(problems())
def test_suggestion_when_less_context_or_fewer_users_then_it_is_admitted_and_one_step_more_is_not(given_: Json) -> None:
    read = problem_from_json(given_)
    found = make_plan(read)
    if not isinstance(found, Refusal):
        return
    for suggestion in found.suggestions:
        words = suggestion.split()
        if "concurrency" in words:
            fewer = int(words[3])
            assert admitted(replace(read, concurrency=fewer))
            assert not admitted(replace(read, concurrency=fewer + 1))
        if "context" in words:
            assert admitted(replace(read, context_tokens=int(words[3])))


def admitted(read: Problem) -> bool:
    return isinstance(make_plan(read), Plan)


@QUICK
@given(problems())
def test_refusal_when_given_then_it_names_a_member_and_positive_bytes(given_: Json) -> None:
    found = result(given_)
    if isinstance(found, Refusal):
        assert found.undersized in [one["name"] for one in given_["members"]]
        assert found.missing_bytes > 0
        assert found.suggestions
        assert found.reason.count("\n") == 0
