"""Plans and refusals read back: as they were told, or refused in a sentence."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_planner import BadPlan, Plan, Refusal, plan_from_json, plan_to_json
from tests.planner.problems import GB, QUICK, Json, as_json, at_length, member, problem, problems, result

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def told() -> Json:
    """Two members in the ring, a third who stands by."""
    members = [member("A"), member("B"), member("C")]
    return as_json(problem(members, objective="throughput", concurrency=4, require=["A", "B"], exclude=["C"]))


def refused() -> Json:
    return as_json(problem([member("A", memory_bytes=GB)]))


def bad(obj: object) -> str:
    with pytest.raises(BadPlan) as caught:
        plan_from_json(obj)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def reads_back(given_: Json) -> None:
    found = result(given_)
    assert plan_from_json(json.loads(json.dumps(plan_to_json(found)))) == found


@QUICK
@given(problems())
def test_plan_when_told_as_json_then_it_is_read_back_unchanged(given_: Json) -> None:
    reads_back(given_)


@at_length
@given(problems())
def test_plan_when_told_as_json_then_it_is_read_back_unchanged_at_length(given_: Json) -> None:
    reads_back(given_)


@pytest.mark.parametrize(
    "fields",
    [
        {"bandwidth_bytes_per_s": None, "flops_per_s": 1e12},
        {"bandwidth_bytes_per_s": None},
        {"rtt_s": None},
        {"memory_bytes": None},
        {"overhead_s": 0, "bandwidth_bytes_per_s": 1e24},
        {"bandwidth_bytes_per_s": 1e-12},
    ],
    ids=lambda fields: "-".join(fields),
)
def test_plan_when_a_measurement_is_missing_or_extreme_then_it_is_read_back_unchanged(fields: Json) -> None:
    reads_back(problem([member("A", **fields), member("B", **fields)]))


def test_refusal_when_the_largest_problem_lacks_memory_then_it_is_read_back_unchanged() -> None:
    huge = problem([member("A")], context_tokens=10**24, concurrency=10**24)
    huge["model"] |= {"blocks": 4096, "kv_bytes_per_token_per_block": 10**24, "kv_fixed_bytes": 10**24}
    assert isinstance(result(huge), Refusal)
    reads_back(huge)


@QUICK
@given(anything)
def test_plan_when_it_is_any_json_then_it_is_refused_in_a_sentence(obj: Any) -> None:
    bad(obj)


def places(obj: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, as keys from the outside in."""
    inner = obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, list) else ()
    return [at, *(place for key, value in inner for place in places(value, (*at, key)))]


def changed(obj: Any, at: tuple[Any, ...], value: Any) -> Any:
    if not at:
        return value
    other = deepcopy(obj)
    inner = other
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return other


@QUICK
@given(st.data())
def test_plan_when_one_value_is_another_then_it_is_refused_or_reads_as_it_is_told(data: st.DataObject) -> None:
    obj = data.draw(st.sampled_from([told(), refused()]))
    obj = changed(obj, data.draw(st.sampled_from(places(obj))), data.draw(anything))
    try:
        found = plan_from_json(obj)
    except BadPlan:
        bad(obj)
    else:
        assert plan_from_json(plan_to_json(found)) == found


@pytest.mark.parametrize(
    ("at", "value", "named"),
    [
        (("admitted",), None, "admitted"),
        (("admitted",), 1, "admitted"),
        (("speed",), 1, "speed"),
        (("reason",), "why", "reason"),
        (("tier",), "best", "tier"),
        (("search",), None, "search"),
        (("head",), "B", "head"),
        (("order",), [], "order"),
        (("order",), ["A", "A"], "order"),
        (("order",), ["A", "Z"], "hops"),
        (("order",), [str(n) for n in range(65)], "order has 65 entries"),
        (("stages",), [], "stages"),
        (("stages", 0, "start"), 1, "stages[0]"),
        (("stages", 1, "start"), 0, "stages[1]"),
        (("stages", 1, "end"), 3, "stages[1]"),
        (("stages", 1, "end"), 10**9, "stages[1]: end"),
        (("stages", 1, "cost_s"), -1, "stages[1]: cost_s"),
        (("stages", 1, "resident_bytes"), 0.5, "stages[1]: resident_bytes"),
        (("stages", 0, "member"), "B", "stages"),
        (("hops",), [], "hops"),
        (("hops", 0, "to"), "A", "hops"),
        (("hops", 0, "path"), "tunnel", "hops[0]: path"),
        (("relayed_hops",), 2, "relayed_hops"),
        (("tokens_per_s",), float("inf"), "tokens_per_s"),
        (("tokens_per_s",), 10**400, "tokens_per_s"),
        (("batch",), 0, "batch"),
        (("idle", 0, "member"), "A", "idle"),
        (("idle", 0, "why"), "", "idle[0]: why"),
        (("notes",), ["a note"] * 17, "notes"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_plan_when_a_value_is_nonsense_then_the_field_is_named(at: tuple[Any, ...], value: Any, named: str) -> None:
    assert isinstance(plan_from_json(told()), Plan)
    assert named in bad(changed(told(), at, value))


@pytest.mark.parametrize(
    "value", [10**5000, [10**5000], {"a": 10**5000}, b"1"], ids=["number", "list", "object", "bytes"]
)
def test_plan_when_a_value_can_not_even_be_shown_then_the_field_is_named(value: Any) -> None:
    assert "tokens_per_s" in bad(told() | {"tokens_per_s": value})


@pytest.mark.parametrize("field", ["admitted", "tier", "head", "order", "stages", "hops", "batch", "idle", "notes"])
def test_plan_when_a_field_is_missing_then_it_is_named(field: str) -> None:
    given_ = told()
    del given_[field]
    assert f"{field} is missing" in bad(given_)


@pytest.mark.parametrize(
    ("field", "value"),
    [("reason", None), ("undersized", 3), ("missing_bytes", -1), ("missing_bytes", 1e90), ("suggestions", "none")],
)
def test_refusal_when_a_value_is_nonsense_then_the_field_is_named(field: str, value: Any) -> None:
    assert isinstance(plan_from_json(refused()), Refusal)
    assert field in bad(refused() | {field: value})
