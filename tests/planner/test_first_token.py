"""Time to the first token of a prompt in chunks, against a ring played chunk by chunk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_planner import Plan, chunking, first_token_s, make_plan, problem_from_json
from tests.planner.problems import QUICK, Json, member, model, problem

TOKEN_S = 0.001  # of one block
HANDLING_S = 0.002


def told(count: int, *, chunk_tokens: int = 128, **fields: object) -> Json:
    members = [
        member(
            f"m{place}",
            block_s={"1": 0.005},
            head_s={"1": 0.05},
            prefill_s={"16": 16 * TOKEN_S * (place + 1), "512": 512 * TOKEN_S * (place + 1)},
            handling_s=HANDLING_S,
            head_handling_s=0.001,
        )
        for place in range(count)
    ]
    blocks = model(blocks=2 * count)
    edges = [{"between": [f"m{a}", f"m{b}"], "rtt_s": 0.02, "path": "direct"} for b in range(count) for a in range(b)]
    return problem(members, model=blocks, strategy="uniform", edges=edges, chunk_tokens=chunk_tokens, **fields)


def played(count: int, chunks: list[int]) -> float:
    """When the head has picked: every stage does one chunk after the other, and each as soon as it is there."""
    free_s, here_s = [0.0] * count, [0.0] * len(chunks)
    for stage in range(count):
        for number, tokens in enumerate(chunks):
            begun_s = max(free_s[stage], here_s[number])
            free_s[stage] = begun_s + 0.001 + HANDLING_S + 2 * tokens * TOKEN_S * (stage + 1)
            here_s[number] = free_s[stage] + (0.01 if count > 1 else 0.0)
    return here_s[-1] + 0.05 + 0.001


@QUICK
@given(st.integers(1, 4), st.lists(st.just(128), max_size=5), st.integers(16, 128))
def test_ttft_when_prefill_is_measured_then_that_of_chunks_that_follow_one_another(
    count: int, full: list[int], last: int
) -> None:
    plan = make_plan(problem_from_json(told(count, prompt_tokens=sum(full) + last)))
    assert isinstance(plan, Plan)
    assert plan.ttft_s == pytest.approx(played(count, [*full, last]))
    assert plan.prompt_tokens == sum(full) + last


def test_first_token_when_another_prompt_comes_then_its_own_time() -> None:
    given = problem_from_json(told(3, prompt_tokens=512))
    plan = make_plan(given)
    assert isinstance(plan, Plan)
    assert first_token_s(given, plan, 512) == plan.ttft_s
    assert first_token_s(given, plan, 200) == pytest.approx(played(3, [128, 72]))


def test_first_token_when_a_hop_is_not_known_then_none() -> None:
    given = problem_from_json(told(2, prompt_tokens=512) | {"edges": []})
    without = [one | {"rtt_s": None} for one in told(2)["members"]]
    unknown = problem_from_json(told(2) | {"edges": [], "members": without})
    plan = make_plan(given)
    assert isinstance(plan, Plan)
    assert first_token_s(unknown, plan, 512) is None


@QUICK
@given(st.integers(1, 4), st.integers(1, 250).map(lambda parts: 16 * parts))
def test_chunks_when_stages_may_do_several_at_once_then_those_with_which_the_first_token_comes_soonest(
    count: int, tokens: int
) -> None:
    given = problem_from_json(told(count, chunk_tokens=512, prompt_tokens=tokens))
    plan = make_plan(given)
    assert isinstance(plan, Plan)
    times = {size: played(count, _parts(tokens, size)) for size in (512, 256, 128)}
    best, size = min(times.values()), chunking(given, plan)(tokens)
    assert plan.ttft_s == pytest.approx(times[size])
    assert times[size] <= best / 0.9 + 1e-9
    assert size == 512 or times[size] < 0.9 * times[512]
    assert size == 512 or (count > 1 and tokens > size)


@pytest.mark.parametrize(("count", "tokens", "size"), [(3, 512, 128), (3, 4000, 512), (1, 512, 512), (3, 100, 512)])
def test_chunks_when_a_ring_of_this_length_reads_such_a_prompt_then_so_many(count: int, tokens: int, size: int) -> None:
    given = problem_from_json(told(count, chunk_tokens=512))
    plan = make_plan(given)
    assert isinstance(plan, Plan)
    assert chunking(given, plan)(tokens) == size
    assert played(3, _parts(512, 128)) < 0.7 * played(3, [512])


def test_chunks_when_prefill_is_not_measured_then_as_long_as_they_may_be() -> None:
    given = problem_from_json(problem([member("a"), member("b")], model=model(blocks=4), chunk_tokens=512))
    plan = make_plan(given)
    assert isinstance(plan, Plan)
    assert chunking(given, plan)(4000) == 512


def _parts(tokens: int, size: int) -> list[int]:
    return [min(size, tokens - begun) for begun in range(0, tokens, size)]
