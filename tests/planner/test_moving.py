"""What moves is weighed against speed: laws over random sessions in which members hold parts of the model."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_planner import (
    BadProblem,
    Plan,
    Problem,
    Refusal,
    make_plan,
    plan_to_json,
    problem_from_json,
    problem_to_json,
    tolls_of,
)
from kafila_planner.model.case import case_of
from kafila_planner.model.rates import Layout, stage_costs
from kafila_planner.moving.stay import AHEAD_TOKENS, divided, toll_of
from kafila_planner.moving.toll import FETCH_BYTES_PER_S, LOAD_BYTES_PER_S, NANOSECONDS, gate_of
from kafila_planner.moving.weigh import UNNOTICED
from tests.planner.oracle import holds
from tests.planner.problems import (
    GB,
    QUICK,
    Json,
    compositions,
    member,
    model,
    plan,
    problem,
    problems,
    refusal,
    result,
)

MOST_BLOCKS = 12


@st.composite
def held(draw: st.DrawFn) -> Json | None:
    """What one member may have: an early part, a late part, the head's matrices; rates that are known or not."""
    if draw(st.integers(0, 4)) == 0:
        return None
    cuts = sorted(draw(st.sets(st.integers(0, MOST_BLOCKS), min_size=4, max_size=4)))
    return {
        "memory_blocks": draw(st.sampled_from([[], [cuts[:2]], [cuts[2:]]])),
        "disk_blocks": draw(st.sampled_from([[], [cuts[:2]], [cuts[:2], cuts[2:]]])),
        "memory_head": draw(st.booleans()),
        "disk_head": draw(st.booleans()),
        "fetch_bytes_per_s": draw(st.sampled_from([None, 1e6, 1e8])),
        "load_bytes_per_s": draw(st.sampled_from([None, 1e9])),
    }


@st.composite
def settled_sessions(draw: st.DrawFn) -> Json:
    """Sessions that choose by an objective, whose members tell what they hold."""
    drawn = draw(problems(blocks=(2, MOST_BLOCKS)))
    drawn["objective"] = draw(st.sampled_from(["latency", "throughput"]))
    return {**drawn, "members": [{**one, "holds": draw(held())} for one in drawn["members"]]}


def without_holdings(given_: Json) -> Json:
    return {**given_, "members": [{**one, "holds": None} for one in given_["members"]]}


def token_s(given_: Json, found: Plan) -> float:
    """Seconds a token, of one user, in the objective's own measure."""
    if given_["objective"] == "latency":
        return 1 / (found.tokens_per_s_one_user or 0)
    return int(given_["concurrency"]) / (found.tokens_per_s or 0)


def moved_s(given_: Json, found: Plan) -> float:
    """Of all stages together, counted block by block."""
    members, sizes = {one["name"]: one for one in given_["members"]}, read(given_).model
    total = 0.0
    for stage in found.stages:
        has = members[stage.member]["holds"] or {}
        memory = {block for start, end in has.get("memory_blocks", ()) for block in range(start, end)}
        disk = {block for start, end in has.get("disk_blocks", ()) for block in range(start, end)} | memory
        blocks, head = range(stage.start, stage.end), sizes.head_held_bytes if stage.member == found.head else 0
        load = sum(sizes.block_bytes[block] for block in blocks if block not in memory)
        fetch = sum(sizes.block_bytes[block] for block in blocks if block not in disk)
        load += 0 if has.get("memory_head") else head
        fetch += 0 if has.get("memory_head") or has.get("disk_head") else head
        total += fetch / (has.get("fetch_bytes_per_s") or FETCH_BYTES_PER_S)
        total += load / (has.get("load_bytes_per_s") or LOAD_BYTES_PER_S)
    return total


def read(given_: Json) -> Problem:
    return problem_from_json(given_)


def admitted(given_: Json) -> tuple[Plan, Plan] | None:
    """The plan, and what it would be if nobody told what it holds."""
    found, free = result(given_), result(without_holdings(given_))
    if isinstance(free, Refusal):
        assert found == free
        return None
    assert isinstance(found, Plan)
    return found, free


@QUICK
@given(settled_sessions())
def test_plan_when_members_hold_parts_then_moving_never_costs_more_than_it_gains(given_: Json) -> None:
    if plans := admitted(given_):
        found, free = plans
        price = [moved_s(given_, one) + AHEAD_TOKENS * token_s(given_, one) for one in plans]
        assert price[0] <= price[1] * (1 + 1e-9) + 1e-6
        assert token_s(given_, found) <= token_s(given_, free) * (1 + UNNOTICED) * (1 + 1e-9)
        assert found.relayed_hops <= free.relayed_hops or found.ordered_by == "priced"


@QUICK
@given(settled_sessions())
def test_plan_when_members_hold_parts_then_every_block_has_one_place_and_limits_are_kept(given_: Json) -> None:
    if plans := admitted(given_):
        stages = plans[0].stages
        assert [stage.start for stage in stages] == [0, *(stage.end for stage in stages[:-1])]
        assert stages[-1].end == given_["model"]["blocks"]
        assert not {stage.end - 1 for stage in stages[:-1]} & set(given_["model"]["no_cut_after"])
        members = {one["name"]: one for one in given_["members"]}
        for place, stage in enumerate(stages):
            assert holds(given_, members[stage.member], stage.start, stage.end, place == 0)


@QUICK
@given(settled_sessions(), st.integers(0, 10**6))
def test_plan_when_members_that_hold_parts_come_in_another_order_then_it_is_the_same(given_: Json, seed: int) -> None:
    shuffled = {**given_, "members": list(given_["members"]), "anchor": given_["members"][0]["name"]}
    random.Random(seed).shuffle(shuffled["members"])
    assert plan_to_json(result(shuffled)) == plan_to_json(result(given_))


@QUICK
@given(settled_sessions())
def test_tolls_when_told_of_a_plan_then_they_are_what_its_members_lack(given_: Json) -> None:
    if plans := admitted(given_):
        tolls = tolls_of(read(given_), plans[0])
        assert tuple(one.member for one in tolls) == plans[0].order
        assert sum(one.toll.seconds for one in tolls) == pytest.approx(moved_s(given_, plans[0]), abs=1e-6)


@QUICK
@given(problems())
def test_plan_when_nobody_tells_what_it_holds_then_it_is_as_without_the_field(given_: Json) -> None:
    assert plan_to_json(result(without_holdings(given_))) == plan_to_json(result(given_))


@QUICK
@given(problems())
def test_plan_when_the_strategy_takes_everybody_then_holdings_change_nothing(given_: Json) -> None:
    given_["objective"] = "paper"
    told = {**given_, "members": [{**one, "holds": {"disk_blocks": [[0, 1]]}} for one in given_["members"]]}
    assert plan_to_json(result(told)) == plan_to_json(result(given_))


@QUICK
@given(settled_sessions(), st.randoms(use_true_random=False))
def test_division_when_a_ring_is_divided_then_no_other_division_of_it_is_cheaper(
    given_: Json, draw: random.Random
) -> None:
    case = case_of(read(given_))
    if case.tier != "measured" or len(case.members) > case.chain.atoms:
        return
    order = tuple(draw.sample(range(len(case.members)), len(case.members)))
    gates = [gate_of(case.problem.model, one) for one in case.members]

    def price_ns(layout: Layout) -> float:
        speed_ns = sum(round(cost * AHEAD_TOKENS * NANOSECONDS) for cost in stage_costs(case, layout, case.prices[0]))
        return toll_of(case, gates, layout)[0].ns + speed_ns

    def fits(layout: Layout) -> bool:
        return all(
            case.chain.held[end] - case.chain.held[start] <= case.room(one, place == 0)
            for place, (one, (start, end)) in enumerate(zip(order, layout.spans(), strict=True))
        )

    every = [Layout(order, counts) for counts in compositions(case.chain.atoms, len(order))]
    best = min((price_ns(layout) for layout in every if fits(layout)), default=None)
    found = divided(case, gates, order, float("inf"))
    assert (found is None) == (best is None)
    assert found is None or price_ns(found) == pytest.approx(best, abs=4 * len(order))


# ---- One session, as people see it


def keeping(start: int, end: int, *, head: bool = False, on_disk: list[list[int]] | None = None) -> Json:
    """Blocks in memory, which are on the disk too."""
    return {
        "memory_blocks": [[start, end]],
        "disk_blocks": on_disk or [[start, end]],
        "memory_head": head,
        "disk_head": head,
        "fetch_bytes_per_s": 1e7,
        "load_bytes_per_s": 1e9,
    }


def left_over(*, second: Json, third: Json) -> Json:
    """Three equal machines had four blocks each; the middle one is gone, and another one came."""
    return problem(
        [
            member("a", memory_bytes=9 * GB, holds=keeping(0, 4, head=True)),
            member("c", memory_bytes=9 * GB, holds=second),
            member("d", memory_bytes=9 * GB, holds=third),
        ],
        model=model(embed_bytes=GB, unembed_bytes=GB),
        objective="latency",
    )


def parts(found: Plan) -> dict[str, tuple[int, int]]:
    return {stage.member: (stage.start, stage.end) for stage in found.stages}


def test_plan_when_a_member_was_lost_then_those_who_are_left_keep_their_blocks() -> None:
    given_ = left_over(second=keeping(8, 12), third=keeping(0, 0) | {"memory_blocks": [], "disk_blocks": [[4, 8]]})
    found = plan(given_)
    kept = parts(found)
    assert kept["a"][0] == 0
    assert kept["a"][1] >= 4
    assert kept["c"][0] <= 8
    assert kept["c"][1] == 12
    assert found.head == "a"
    assert sum(one.toll.fetch_bytes for one in tolls_of(read(given_), found)) == 0


def test_plan_when_one_has_the_lost_blocks_on_its_disk_then_it_takes_them_over() -> None:
    for spare in ("a", "c"):
        members = [
            member("a", memory_bytes=12 * GB, holds=keeping(0, 4, head=True)),
            member("c", memory_bytes=12 * GB, holds=keeping(8, 12)),
        ]
        for one in members:
            if one["name"] == spare:
                one["holds"]["disk_blocks"] = [[0, 8]] if spare == "a" else [[4, 12]]
        given_ = problem(members, model=model(embed_bytes=GB, unembed_bytes=GB), objective="latency")
        found = parts(plan(given_))
        assert found == ({"a": (0, 8), "c": (8, 12)} if spare == "a" else {"a": (0, 4), "c": (4, 12)})


def test_plan_when_a_member_is_far_quicker_then_it_takes_blocks_though_they_have_to_move() -> None:
    slow = member("a", bandwidth_bytes_per_s=10 * GB, holds=keeping(0, 12, head=True))
    quick = member("b", bandwidth_bytes_per_s=1000 * GB, holds={"fetch_bytes_per_s": 1e9})
    found = plan(problem([slow, quick], objective="latency"))
    assert found.order == ("b",)


def test_plan_when_it_stays_for_what_is_held_then_it_says_what_that_saves_and_what_was_assumed() -> None:
    members = [
        member("a", bandwidth_bytes_per_s=100 * GB, holds={"memory_blocks": [[0, 12]], "memory_head": True}),
        member("b", bandwidth_bytes_per_s=105 * GB, holds={}),
    ]
    found = plan(problem(members, objective="latency"))
    assert found.order == ("a",)
    assert any("members keep what they hold: 0 bytes come into memory instead of 16 GB" in note for note in found.notes)
    assert any(note.startswith("how quickly each of a fetches was not measured: 12.5 MB") for note in found.notes)


def test_plan_when_nothing_fits_then_holdings_do_not_change_the_refusal() -> None:
    small = [member("a", memory_bytes=5 * GB, holds=keeping(0, 3, head=True)), member("b", memory_bytes=5 * GB)]
    given_ = problem(small, objective="latency")
    assert refusal(given_) == refusal(without_holdings(given_))


def test_problem_when_written_then_what_members_hold_is_read_back() -> None:
    given_ = read(left_over(second=keeping(8, 12, on_disk=[[0, 2], [8, 12]]), third={}))
    assert problem_from_json(problem_to_json(given_)) == given_


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ({"blocks": [[0, 1]]}, "a field that is not known: 'blocks'"),
        ({"disk_blocks": [[3, 3]]}, "ascending and apart"),
        ({"disk_blocks": [[3, 6], [5, 8]]}, "ascending and apart"),
        ({"disk_blocks": [[3]]}, "ascending and apart"),
        ({"memory_blocks": [[0, 99999]]}, "at most 4096"),
        ({"memory_blocks": [[2 * place, 2 * place + 1] for place in range(300)]}, "at most 256"),
        ({"fetch_bytes_per_s": 0}, "above 0"),
        ({"memory_head": 1}, "true or false"),
        ([], "a JSON object"),
    ],
)
def test_holdings_when_they_are_nonsense_then_the_member_and_the_field_are_named(told: object, fault: str) -> None:
    with pytest.raises(BadProblem, match=fault):
        problem_from_json(problem([member("a", holds=told)]))


def test_plan_when_members_hold_more_than_the_model_has_then_the_rest_is_of_no_use() -> None:
    found = make_plan(read(problem([member("a", holds={"memory_blocks": [[0, 400]]})], objective="latency")))
    assert isinstance(found, Plan)
