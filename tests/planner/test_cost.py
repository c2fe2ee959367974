"""Stage costs, batches, tiers, and the time to the first token."""

import pytest

from kafila_planner.model.cost import step_s
from kafila_planner.model.types import Tier
from tests.planner.problems import GB, Json, as_json, counts, member, model, plan, problem

ONE = problem([member("A")])


def test_cost_when_one_member_then_it_is_the_papers_equation() -> None:
    """1 ms overhead, 12 blocks of 10 ms, 20 ms for reading 2 GB of unembedding; the embedding is not read."""
    found = plan(ONE)
    assert found.stages[0].cost_s == pytest.approx(0.001 + 12 * 0.010 + 0.020)
    assert found.stages[0].resident_bytes == 12 * GB + 4 * GB


def test_cost_when_tied_then_the_matrix_is_held_once_and_still_read() -> None:
    found = plan({**ONE, "model": model(tied=True)})
    assert found.stages[0].resident_bytes == 12 * GB + 2 * GB
    assert found.compute_s == pytest.approx(0.001 + 12 * 0.010 + 0.020)


@pytest.mark.parametrize("unembed", [None, 0, 2 * GB])
def test_cost_when_tied_then_the_unembedding_may_be_left_out(unembed: int | None) -> None:
    assert as_json({**ONE, "model": model(tied=True, unembed_bytes=unembed)}) == as_json(
        {**ONE, "model": model(tied=True)}
    )


def test_cost_when_blocks_read_less_than_they_hold_then_only_reading_takes_time() -> None:
    found = plan({**ONE, "model": model(block_read_bytes=GB // 4)})
    assert found.compute_s == pytest.approx(0.001 + 12 * 0.0025 + 0.020)
    assert found.stages[0].resident_bytes == 16 * GB


@pytest.mark.parametrize(
    ("fields", "bytes_a_block"),
    [
        ({"kv_bytes_per_token_per_block": 1000}, 1000 * 1024 * 4),
        ({"kv_bytes_per_token_per_block": 1000, "kv_window_tokens": 100}, 1000 * 100 * 4),
        ({"kv_bytes_per_token_per_block": 1000, "kv_window_tokens": 9999}, 1000 * 1024 * 4),
        ({"kv_bytes_per_token_per_block": 0, "kv_fixed_bytes": 5000}, 5000 * 4),
        ({"kv_bytes_per_token_per_block": 1000, "kv_fixed_bytes": 5000}, (1000 * 1024 + 5000) * 4),
    ],
)
def test_resident_bytes_when_four_sequences_then_each_has_its_cache(fields: Json, bytes_a_block: int) -> None:
    found = plan({**ONE, "model": model(**fields), "concurrency": 4})
    assert found.stages[0].resident_bytes == 16 * GB + 12 * bytes_a_block


def test_resident_bytes_when_windows_differ_by_block_then_each_block_counts_its_own() -> None:
    windows = [None, 100] * 6
    found = plan({**ONE, "model": model(kv_bytes_per_token_per_block=1000, kv_window_tokens=windows)})
    assert found.stages[0].resident_bytes == 16 * GB + 6 * 1000 * (1024 + 100)


def test_resident_bytes_when_reserve_and_prefill_peak_then_every_member_has_them() -> None:
    crowd = [member("A"), member("B")]
    found = plan(problem(crowd, reserve_bytes=GB, prefill_peak_bytes=GB // 2))
    assert sum(stage.resident_bytes for stage in found.stages) == 16 * GB + 2 * (GB + GB // 2)


STEPS = ((1, 0.010), (4, 0.016), (8, 0.032))


@pytest.mark.parametrize(
    ("batch", "seconds"), [(1, 0.010), (2, 0.012), (4, 0.016), (6, 0.024), (8, 0.032), (16, 0.064)]
)
def test_step_s_when_between_and_beyond_measured_sizes_then_linear(batch: int, seconds: float) -> None:
    assert step_s(STEPS, batch) == pytest.approx(seconds)


def test_step_s_when_at_a_measured_size_then_exactly_what_was_measured() -> None:
    assert step_s(((1, 1e5), (2, 1e-12)), 2) == 1e-12


def test_rate_when_only_the_head_was_measured_by_batch_then_batches_are_tried_whoever_else_is_there() -> None:
    alone = [member("A", head_s={"1": 0.02, "8": 0.02})]
    asked = problem(alone, concurrency=8, objective="throughput", model=model(blocks=1))
    with_idle = problem(
        [*alone, member("B", memory_bytes=1)], concurrency=8, objective="throughput", model=model(blocks=1)
    )
    rates = [plan(one).tokens_per_s or 0 for one in (asked, with_idle)]
    assert rates[0] == rates[1] > 1.01 / (0.001 + 0.010 + 0.020)


def test_rate_when_a_bandwidth_and_a_larger_batch_are_known_then_it_gains() -> None:
    one = member("A", block_s={"8": 0.010})
    found = plan(problem([one], concurrency=8, objective="throughput", model=model(blocks=1, unembed_bytes=0)))
    assert found.tokens_per_s == pytest.approx(8 / 0.011)


def test_step_s_when_a_larger_batch_was_measured_faster_then_it_falls_no_further() -> None:
    assert step_s(((1, 0.010), (4, 0.009)), 64) == pytest.approx(0.009)


def test_step_s_when_one_size_only_then_nothing_is_gained_by_batching() -> None:
    assert step_s(((1, 0.010),), 4) == pytest.approx(0.040)


def test_cost_when_block_and_head_times_are_given_then_they_stand_above_the_bandwidth() -> None:
    fast = member("A", block_s={"1": 0.002, "8": 0.004}, head_s={"1": 0.003})
    assert plan(problem([fast])).compute_s == pytest.approx(0.001 + 12 * 0.002 + 0.003)


def test_cost_when_there_is_no_bandwidth_then_block_times_price_the_head_too() -> None:
    """A gigabyte in 2 ms reads the head's two in 4."""
    timed = member("A", bandwidth_bytes_per_s=None, block_s={"1": 0.002, "4": 0.003})
    found = plan(problem([timed]))
    assert found.tier is Tier.MEASURED
    assert found.compute_s == pytest.approx(0.001 + 12 * 0.002 + 0.004)


def test_rate_when_batches_are_nearly_free_then_the_best_batch_is_taken() -> None:
    """Four sequences a step: 1 + 12 · 10 ms, and the head, whose time is not measured, four times 20 ms."""
    given = problem([member("A", block_s={"1": 0.010, "8": 0.010})], concurrency=4)
    found = plan(given)
    assert found.batch == 4
    assert found.tokens_per_s == pytest.approx(4 / (0.001 + 0.120 + 4 * 0.020))
    assert found.tokens_per_s_one_user == pytest.approx(1 / 0.141)


def test_rate_when_nothing_is_measured_by_batch_then_four_users_share_one_members_rate() -> None:
    found = plan(problem([member("A")], concurrency=4))
    assert found.batch == 1
    assert found.tokens_per_s == pytest.approx(1 / 0.141)


def test_rate_when_a_ring_then_users_fill_it_until_the_bottleneck() -> None:
    """min(U / circuit, 1 / bottleneck)."""
    crowd = [member(name, rtt_s=0.5, nat="restrictive") for name in "AB"]
    far = plan(problem(crowd, concurrency=2))
    assert far.tokens_per_s == pytest.approx(2 / (far.circuit_s or 0))
    near = plan(problem([member(name, rtt_s=0.001) for name in "AB"], concurrency=8))
    assert near.tokens_per_s == pytest.approx(1 / (near.bottleneck_s or 0))


def test_ttft_when_throughput_is_known_then_each_stage_reads_or_computes_whichever_is_longer() -> None:
    """1000 tokens · 12 GB at an operation a byte and token are 1.2e13 operations: 1.2 s at 1e13, against 0.12 s."""
    given = problem([member("A", flops_per_s=1e13)], prompt_tokens=1000)
    assert plan(given).ttft_s == pytest.approx(0.001 + 1.2 + 0.020)
    assert plan({**given, "prompt_tokens": 10}).ttft_s == pytest.approx(0.141)


def test_ttft_when_a_throughput_or_the_prompt_or_a_hop_is_unknown_then_null() -> None:
    known = member("A", flops_per_s=1e13)
    assert plan(problem([known])).ttft_s is None
    assert plan(problem([known, member("B")], prompt_tokens=9)).ttft_s is None
    assert plan(problem([known, member("B", flops_per_s=1e13, rtt_s=None)], prompt_tokens=9)).ttft_s is None


UNPRICED = member("C", bandwidth_bytes_per_s=None)


@pytest.mark.parametrize("missing", ["bandwidth_bytes_per_s", "overhead_s"])
def test_tier_when_a_measurement_is_missing_then_arithmetic_throughput_divides(missing: str) -> None:
    crowd = [
        member("A", flops_per_s=1e12),
        member("B", flops_per_s=2e12),
        member("C", flops_per_s=1e12, **{missing: None}),
    ]
    found = plan(problem(crowd, anchor="C"))
    assert found.tier is Tier.ARITHMETIC
    assert found.head == "C"
    assert dict(zip(found.order, counts(found), strict=True)) == {"A": 3, "B": 6, "C": 3}
    assert [stage.cost_s for stage in found.stages] == pytest.approx([6.0, 6.0, 6.0])
    assert (found.circuit_s, found.tokens_per_s, found.tokens_per_s_one_user) == (None, None, None)
    assert any("C" in note for note in found.notes)
    assert any("relative" in note for note in found.notes)


def test_tier_when_nothing_prices_a_member_then_memory_divides() -> None:
    crowd = [member("A", memory_bytes=20 * GB), member("B", memory_bytes=40 * GB), UNPRICED | {"memory_bytes": 60 * GB}]
    found = plan(problem(crowd))
    assert found.tier is Tier.WORKING_SET
    assert dict(zip(found.order, counts(found), strict=True)) == {"A": 2, "B": 4, "C": 6}
    assert {stage.cost_s for stage in found.stages} == {None}
    assert (found.bottleneck_s, found.compute_s, found.imbalance, found.utilisation) == (None, None, None, None)
    assert found.head == "A"


def test_tier_when_memory_divides_and_the_head_would_overflow_then_the_others_take_more() -> None:
    """Equal shares are four blocks, but the head's four gigabytes leave the anchor room for two."""
    crowd = [member(name, bandwidth_bytes_per_s=None, memory_bytes=6 * GB) for name in "ABC"]
    found = plan(problem(crowd))
    assert found.tier is Tier.WORKING_SET
    assert counts(found)[0] == 2


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_objective_when_there_are_no_seconds_then_everybody_takes_part_and_it_says_so(objective: str) -> None:
    found = plan(problem([member("A"), member("B"), UNPRICED], objective=objective))
    assert sorted(found.order) == ["A", "B", "C"]
    assert any(objective in note for note in found.notes)


def test_objective_when_the_unmeasured_member_could_hold_nothing_then_it_lowers_no_tier() -> None:
    found = plan(problem([member("A"), UNPRICED | {"memory_bytes": 1}], objective="latency"))
    assert found.tier is Tier.MEASURED
    assert [one.member for one in found.idle] == ["C"]
