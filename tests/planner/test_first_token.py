"""Time to the first token of a prompt in chunks, against a ring played chunk by chunk."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_planner import Plan, Problem, chunk_beside, chunking, first_token_s, make_plan, problem_from_json
from tests.planner.problems import QUICK, Json, member, model, problem

TOKEN_S = 0.001  # of one block
HANDLING_S = 0.002
STATE_BYTES = 8192
SPEEDS = st.none() | st.sampled_from([1e5, 1e6, 4e6, 1e8])


def told(count: int, *, chunk_tokens: int = 128, bytes_per_s: float | None = None, **fields: object) -> Json:
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
    edges = [linked(f"m{a}", f"m{b}", bytes_per_s) for b in range(count) for a in range(b)]
    limits = {"chunk_tokens": chunk_tokens, "state_bytes": STATE_BYTES}
    return problem(members, model=blocks, strategy="uniform", edges=edges, **(limits | fields))


def linked(a: str, b: str, bytes_per_s: float | None) -> Json:
    """The way to the later one is as quick as said; the way back is not slow."""
    speeds = {} if bytes_per_s is None else {"bytes_per_s": {a: bytes_per_s, b: 1e9}}
    return {"between": [a, b], "rtt_s": 0.02, "path": "direct", **speeds}


def played(count: int, chunks: Sequence[int], bytes_per_s: float | None = None) -> float:
    """When the head has picked: every stage does one chunk after the other, and each as soon as it is there; and so
    does every link."""
    free_s, link_s, here_s = [0.0] * count, [0.0] * count, [0.0] * len(chunks)
    sent_s = 0.0 if bytes_per_s is None else STATE_BYTES / bytes_per_s
    back_s = 0.0 if bytes_per_s is None or count == 1 else STATE_BYTES / (1e9 if count > 1 else bytes_per_s)
    for stage in range(count):
        for number, tokens in enumerate(chunks):
            begun_s = max(free_s[stage], here_s[number])
            block_s = tokens * TOKEN_S * (stage + 1) if tokens >= 16 else decoded(tokens, stage)
            free_s[stage] = begun_s + 0.001 + HANDLING_S + 2 * block_s
            if stage + 1 < count:
                link_s[stage] = max(link_s[stage], free_s[stage]) + tokens * sent_s
            here_s[number] = max(free_s[stage], link_s[stage]) + (0.01 if count > 1 else 0.0)
    return here_s[-1] + back_s + 0.05 + 0.001


def decoded(tokens: int, stage: int) -> float:
    """Of a block: between a decode step and the shortest chunk that was measured."""
    along = (tokens - 1) / 15
    return 0.005 * (1 - along) + 16 * TOKEN_S * (stage + 1) * along


def planned(given: Json) -> tuple[Problem, Plan]:
    read = problem_from_json(given)
    plan = make_plan(read)
    assert isinstance(plan, Plan)
    return read, plan


@QUICK
@given(st.integers(1, 4), st.lists(st.just(128), max_size=5), st.integers(16, 128), SPEEDS)
def test_ttft_when_prefill_is_measured_then_that_of_chunks_that_follow_one_another(
    count: int, full: list[int], last: int, bytes_per_s: float | None
) -> None:
    tokens = sum(full) + last
    _, plan = planned(told(count, prompt_tokens=tokens, bytes_per_s=bytes_per_s))
    sizes = (128, 64, 32) if is_link_slowest(count, bytes_per_s) else (128,)
    assert plan.ttft_s == pytest.approx(soonest(count, tokens, bytes_per_s, sizes)[1])
    assert plan.prompt_tokens == tokens


def test_first_token_when_another_prompt_comes_then_its_own_time() -> None:
    given, plan = planned(told(3, prompt_tokens=512))
    assert first_token_s(given, plan, 512) == plan.ttft_s
    assert first_token_s(given, plan, 200) == pytest.approx(played(3, parts(200, 128)))


def test_first_token_when_a_hop_is_not_known_then_none() -> None:
    _, plan = planned(told(2, prompt_tokens=512) | {"edges": []})
    without = [one | {"rtt_s": None} for one in told(2)["members"]]
    unknown = problem_from_json(told(2) | {"edges": [], "members": without})
    assert first_token_s(unknown, plan, 512) is None


@QUICK
@given(st.integers(1, 4), st.integers(1, 250).map(lambda parts: 16 * parts), SPEEDS)
def test_chunks_when_stages_may_do_several_at_once_then_those_with_which_the_first_token_comes_soonest(
    count: int, tokens: int, bytes_per_s: float | None
) -> None:
    given, plan = planned(told(count, chunk_tokens=512, prompt_tokens=tokens, bytes_per_s=bytes_per_s))
    sizes = (512, 256, 128, 64, 32) if is_link_slowest(count, bytes_per_s) else (512, 256, 128)
    times = {size: played(count, parts(tokens, size), bytes_per_s) for size in sizes}
    best, size = min(times.values()), chunking(given, plan)(tokens)
    assert plan.ttft_s == pytest.approx(times[size])
    assert times[size] <= best / 0.9 + 1e-9
    assert size == 512 or times[size] < 0.9 * times[512]
    assert size == 512 or (count > 1 and tokens > size)


@pytest.mark.parametrize(("count", "tokens", "size"), [(3, 512, 128), (3, 4000, 512), (1, 512, 512), (3, 100, 512)])
def test_chunks_when_a_ring_of_this_length_reads_such_a_prompt_then_so_many(count: int, tokens: int, size: int) -> None:
    given, plan = planned(told(count, chunk_tokens=512))
    assert chunking(given, plan)(tokens) == size
    assert played(3, parts(512, 128)) < 0.7 * played(3, parts(512, 512))


@pytest.mark.parametrize(
    ("bytes_per_s", "size"),
    [
        (None, 512),  # not known
        (1e8, 512),  # a chunk goes in 0.04 s, and takes stages two
        (4e6, 128),  # it is one stage more, which waits for the first chunk too
        (2e6, 32),  # all stages wait for it, and begin the sooner
        (2e5, 512),  # whatever goes first, nearly all of the time is the link's
    ],
)
def test_chunks_when_a_link_is_slow_then_as_short_as_that_gains_a_tenth(bytes_per_s: float | None, size: int) -> None:
    given, plan = planned(told(2, chunk_tokens=512, bytes_per_s=bytes_per_s))
    assert chunking(given, plan)(2000) == size


def test_ttft_when_a_link_is_slow_then_no_sooner_than_it_carries_the_prompt() -> None:
    tokens, bytes_per_s = 1000, 1e6
    quick, slow = (
        planned(told(2, chunk_tokens=512, prompt_tokens=tokens, bytes_per_s=speed))[1].ttft_s
        for speed in (1e9, bytes_per_s)
    )
    assert quick is not None
    assert slow is not None
    assert quick < tokens * STATE_BYTES / bytes_per_s < slow


def test_ttft_when_only_the_way_back_is_slow_then_one_token_pays_for_it() -> None:
    times = []
    for speed in (1e9, 1e6):
        edge = {"between": ["m0", "m1"], "rtt_s": 0.02, "path": "direct", "bytes_per_s": {"m0": 1e9, "m1": speed}}
        given = told(2, chunk_tokens=512, prompt_tokens=1000) | {"edges": [edge]}
        _, plan = planned(given)
        assert plan.head == "m0"
        assert plan.ttft_s is not None
        times.append(plan.ttft_s)
    assert times[1] - times[0] == pytest.approx(STATE_BYTES / 1e6, rel=0.01)


def test_chunks_when_prefill_is_not_measured_then_as_long_as_they_may_be() -> None:
    given, plan = planned(problem([member("a"), member("b")], model=model(blocks=4), chunk_tokens=512))
    assert chunking(given, plan)(4000) == 512


@QUICK
@given(st.integers(1, 4), st.floats(1.0, 100.0))
def test_chunk_beside_decoders_when_it_runs_then_no_stage_is_kept_longer_than_their_steps(
    count: int, steps: float
) -> None:
    given, plan = planned(told(count, chunk_tokens=512))
    longest = chunk_beside(given, plan, steps)
    assert longest is not None

    def kept(tokens: int) -> list[bool]:
        blocks = [tokens * TOKEN_S * (at + 1) if tokens >= 16 else decoded(tokens, at) for at in range(count)]
        steps_s = [stage.cost_s or 0.0 for stage in plan.stages]
        return [0.003 + 2 * block <= steps * step + 1e-9 for block, step in zip(blocks, steps_s, strict=True)]

    assert longest == 0 or all(kept(longest))
    assert longest == 512 or not all(kept(longest + 1))


def test_chunk_beside_decoders_when_prefill_is_not_measured_then_not_known() -> None:
    given, plan = planned(problem([member("a"), member("b")], model=model(blocks=4), chunk_tokens=512))
    assert chunk_beside(given, plan, 3.0) is None


def parts(tokens: int, size: int) -> list[int]:
    """As the engine divides it."""
    return [*(min(size, tokens - 1 - begun) for begun in range(0, tokens - 1, size)), 1]


def is_link_slowest(count: int, bytes_per_s: float | None) -> bool:
    """Whether 128 tokens take it longer than the last stage."""
    return count > 1 and bytes_per_s is not None and STATE_BYTES / bytes_per_s * 128 > 0.003 + 2 * 128 * TOKEN_S * count


def soonest(count: int, tokens: int, bytes_per_s: float | None, sizes: Sequence[int]) -> tuple[int, float]:
    """The size with which it comes, and when; the longest unless another one is a tenth sooner."""
    times = {size: played(count, parts(tokens, size), bytes_per_s) for size in sizes}
    best = min(times, key=lambda size: times[size])
    size = best if times[best] < 0.9 * times[sizes[0]] else sizes[0]
    return size, times[size]
