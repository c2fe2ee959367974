"""Problems at the edge of what there is."""

import pytest

from tests.planner.problems import GB, counts, member, model, plan, problem, refusal

OBJECTIVES = ["paper", "latency", "throughput"]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("concurrency", [1, 4])
def test_plan_when_one_block_then_one_member(objective: str, concurrency: int) -> None:
    crowd = [member("A", bandwidth_bytes_per_s=50 * GB), member("B")]
    found = plan(problem(crowd, objective=objective, concurrency=concurrency, model=model(blocks=1)))
    assert found.order == ("B",)
    assert counts(found) == [1]
    assert found.hops == ()
    assert "more members than blocks" in found.idle[0].why


def test_plan_when_all_are_restrictive_then_every_hop_relays() -> None:
    crowd = [member(name, nat="restrictive") for name in "ABCD"]
    assert plan(problem(crowd)).relayed_hops == 4


def test_plan_when_members_are_equal_then_shares_are_even() -> None:
    free_head = model(embed_bytes=0, unembed_bytes=0)
    assert counts(plan(problem([member(name) for name in "ABCD"], model=free_head))) == [3, 3, 3, 3]


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_plan_when_one_is_far_too_small_then_it_stands_by(objective: str) -> None:
    found = plan(problem([member("A"), member("B", memory_bytes=1000)], objective=objective))
    assert found.order == ("A",)
    assert found.idle[0].member == "B"
    assert "can't hold one block" in found.idle[0].why
    assert found.idle[0].tokens_per_s_with is None


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_plan_when_cuts_are_forbidden_then_none_is_made(objective: str) -> None:
    """Blocks 0 to 5 hang together, and 6 to 11."""
    bound = model(no_cut_after=[0, 1, 2, 3, 4, 6, 7, 8, 9, 10])
    crowd = [member(name, memory_bytes=11 * GB) for name in "AB"]
    found = plan(problem(crowd, objective=objective, model=bound))
    assert counts(found) == [6, 6]


def test_plan_when_no_cut_is_allowed_at_all_then_one_member_holds_everything() -> None:
    bound = model(no_cut_after=list(range(11)))
    assert counts(plan(problem([member("A"), member("B")], model=bound))) == [12]
    small = [member(name, memory_bytes=10 * GB) for name in "AB"]
    assert refusal(problem(small, model=bound)).undersized in "AB"


def test_plan_when_arrays_say_the_same_as_numbers_then_the_same_plan() -> None:
    crowd = [member("A"), member("B", bandwidth_bytes_per_s=30 * GB), member("C", memory_bytes=6 * GB)]
    arrays = model(
        block_bytes=[GB] * 12,
        kv_bytes_per_token_per_block=[0] * 12,
        kv_fixed_bytes=[0] * 12,
        kv_window_tokens=[None] * 12,
    )
    assert plan(problem(crowd, model=arrays)) == plan(problem(crowd))


def test_plan_when_blocks_are_unequal_then_the_division_is_by_bytes() -> None:
    heavy_first = model(block_bytes=[6 * GB, GB, GB, GB, GB, GB, GB], blocks=7, embed_bytes=0, unembed_bytes=0)
    assert counts(plan(problem([member("A"), member("B")], model=heavy_first))) == [1, 6]


def test_plan_when_the_anchor_is_excluded_then_the_first_other_name_stands_for_it() -> None:
    crowd = [member("B"), member("A"), member("C")]
    found = plan(problem(crowd, anchor="B", exclude=["B"]))
    assert found.order == ("A", "C")
    assert [(one.member, one.why) for one in found.idle] == [("B", "excluded")]
    assert found.idle[0].tokens_per_s_with == pytest.approx(plan(problem(crowd, anchor="A")).tokens_per_s)


def test_plan_when_sixty_four_members_then_all_are_in_the_ring() -> None:
    crowd = [member(f"m{place:02}", rtt_s=0.001 * (1 + place * 29 % 64)) for place in range(64)]
    found = plan(problem(crowd, model=model(blocks=64)))
    assert sorted(found.order) == [one["name"] for one in crowd]
    assert found.search == "heuristic"
    assert found.ring_cost_s == pytest.approx(2 * 0.063), "permissive members on a line: there and back"


def test_idle_when_blocks_are_unequal_then_another_order_is_looked_for_before_it_is_said_to_be_impossible() -> None:
    sizes = {"blocks": 4, "block_bytes": [6, 2, 6, 3], "embed_bytes": 0, "unembed_bytes": 0}
    crowd = [
        member(name, rtt_s=1, overhead_s=0, bandwidth_bytes_per_s=speed, memory_bytes=room)
        for name, speed, room in (("A", 1, 7), ("B", 2, 9), ("C", 1, 4), ("D", 2, 4))
    ]
    found = plan(problem(crowd, model=model(**sizes), objective="latency"))
    together = plan(problem(crowd, model=model(**sizes), objective="latency", require=["all"]))
    assert [one.member for one in found.idle] == ["C"]
    assert found.idle[0].tokens_per_s_with == together.tokens_per_s


def test_idle_when_each_block_has_its_member_then_the_fastest_is_not_called_slow() -> None:
    crowd = [member("A", rtt_s=0.01), member("B", rtt_s=0.01), member("C", rtt_s=9.0, bandwidth_bytes_per_s=110 * GB)]
    heads = model(blocks=2, embed_bytes=GB // 2, unembed_bytes=GB // 2)
    found = plan(problem(crowd, model=heads, objective="throughput", concurrency=4))
    assert [one.member for one in found.idle] == ["C"]
    assert "slowest" not in found.idle[0].why


def test_idle_when_memory_is_not_known_then_it_says_so() -> None:
    found = plan(problem([member("A"), member("B", memory_bytes=None)], objective="latency"))
    assert found.idle[0].why.endswith("its memory is not known")
