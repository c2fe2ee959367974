"""Problems as JSON for the planner's tests: plain ones to change, and random ones."""

import itertools
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from kafila_planner import Plan, Refusal, make_plan, plan_to_json, problem_from_json

Json = dict[str, Any]

QUICK = settings(max_examples=60, deadline=None, derandomize=True)
LONG = settings(max_examples=2500, deadline=None, derandomize=True)


def at_length(law: Any) -> Any:
    """The law over thousands of cases: `make test-long`."""
    return pytest.mark.timeout(900)(pytest.mark.long(LONG(law)))


NAT = ["permissive", "ordinary", "restrictive"]
GB = 10**9


def model(**fields: Any) -> Json:
    """Twelve blocks of a gigabyte; head matrices of two."""
    plain: Json = {
        "blocks": 12,
        "block_bytes": GB,
        "embed_bytes": 2 * GB,
        "unembed_bytes": 2 * GB,
        "norm_bytes": 0,
        "kv_bytes_per_token_per_block": 0,
    }
    return plain | fields


def member(name: str, **fields: Any) -> Json:
    """Reads a block in 10 ms, waits 1 ms, holds the whole model, 10 ms from the rendezvous."""
    plain: Json = {
        "name": name,
        "nat": "permissive",
        "rtt_s": 0.010,
        "bandwidth_bytes_per_s": 100 * GB,
        "overhead_s": 0.001,
        "memory_bytes": 100 * GB,
    }
    return plain | fields


def problem(members: list[Json], **fields: Any) -> Json:
    plain: Json = {
        "model": model(),
        "context_tokens": 1024,
        "concurrency": 1,
        "objective": "paper",
        "members": members,
    }
    return plain | fields


def result(given: Json) -> Plan | Refusal:
    return make_plan(problem_from_json(given))


def plan(given: Json) -> Plan:
    found = result(given)
    assert isinstance(found, Plan), found
    return found


def refusal(given: Json) -> Refusal:
    found = result(given)
    assert isinstance(found, Refusal), found
    return found


def as_json(given: Json) -> Json:
    return plan_to_json(result(given))


def counts(found: Plan) -> list[int]:
    return [stage.end - stage.start for stage in found.stages]


step_times = st.one_of(
    st.none(),
    st.tuples(st.floats(1e-3, 1e-2), st.floats(1.0, 4.0)).map(lambda t: {"1": t[0], "4": t[0] * t[1]}),
)


@st.composite
def members(draw: st.DrawFn, least: int = 1, most: int = 5, memory: tuple[float, float] = (1, 14)) -> list[Json]:
    size = draw(st.integers(least, most))
    return [
        member(
            f"m{place}",
            nat=draw(st.sampled_from(NAT)),
            rtt_s=draw(st.sampled_from([0.001, 0.004, 0.020, 0.080])) * draw(st.integers(1, 3)),
            bandwidth_bytes_per_s=draw(st.integers(20, 1500)) * GB,
            overhead_s=draw(st.sampled_from([0.0, 5e-5, 1e-3])),
            memory_bytes=draw(st.floats(*memory)) * GB,
            block_s=draw(step_times),
        )
        for place in range(size)
    ]


@st.composite
def models(draw: st.DrawFn, blocks: tuple[int, int] = (1, 12), unequal: bool | None = None) -> Json:
    size = draw(st.integers(*blocks))
    if unequal is None:
        unequal = draw(st.booleans())
    sizes = st.sampled_from([GB // 2, GB, 2 * GB])
    return model(
        blocks=size,
        block_bytes=[draw(sizes) for _ in range(size)] if unequal else draw(sizes),
        tied=draw(st.booleans()),
        kv_bytes_per_token_per_block=draw(st.sampled_from([0, 4096])),
        no_cut_after=draw(st.lists(st.integers(0, size - 1), max_size=3)) if unequal else [],
    )


@st.composite
def problems(draw: st.DrawFn, /, most: int = 5, blocks: tuple[int, int] = (1, 12), **fixed: Any) -> Json:
    """Sessions that are admitted about half of the time."""
    given = problem(
        draw(members(most=most)),
        model=draw(models(blocks)),
        concurrency=draw(st.sampled_from([1, 2, 4])),
        objective=draw(st.sampled_from(["paper", "latency", "throughput"])),
        reserve_bytes=draw(st.sampled_from([0, GB // 2])),
        prompt_tokens=draw(st.sampled_from([None, 512])),
    )
    return given | fixed


def compositions(total: int, parts: int) -> "itertools.chain[tuple[int, ...]]":
    """All ways to write a total as a sum of that many numbers above 0, in order."""
    return itertools.chain(
        tuple(after - before for before, after in itertools.pairwise((0, *cuts, total)))
        for cuts in itertools.combinations(range(1, total), parts - 1)
    )
