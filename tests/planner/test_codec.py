"""The JSON interface: what is read, what is refused, and how that is said."""

import math
from typing import Any

import pytest

from kafila_planner import BadProblem, problem_from_json, problem_to_json
from kafila_planner.model.types import Filtering, Mapping, Objective, Strategy
from tests.planner.problems import Json, member, model, problem

HUGE = 10**400


def bad(given: object) -> str:
    with pytest.raises(BadProblem) as caught:
        problem_from_json(given)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def with_member(**fields: Any) -> Json:
    return problem([member("A"), member("Bo", **fields)])


MEASUREMENTS = ["rtt_s", "bandwidth_bytes_per_s", "overhead_s", "flops_per_s", "memory_bytes"]
WRONG: list[Any] = [-1, -0.5, math.nan, math.inf, -math.inf, "fast", True, [1], {}, HUGE, 1e300]


@pytest.mark.parametrize("field", MEASUREMENTS)
@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:12])
def test_problem_when_a_measurement_is_nonsense_then_field_and_member_are_named(field: str, value: Any) -> None:
    sentence = bad(with_member(**{field: value}))
    assert field in sentence
    assert "'Bo'" in sentence


@pytest.mark.parametrize("field", ["rtt_s", "bandwidth_bytes_per_s", "flops_per_s"])
def test_problem_when_a_measurement_is_zero_where_it_can_not_be_then_it_is_refused(field: str) -> None:
    assert field in bad(with_member(**{field: 0}))


@pytest.mark.parametrize("field", ["overhead_s", "memory_bytes"])
def test_problem_when_a_measurement_may_be_zero_then_it_is_read(field: str) -> None:
    assert problem_from_json(with_member(**{field: 0})).members[1].name == "Bo"


@pytest.mark.parametrize("field", [*MEASUREMENTS, "block_s", "head_s"])
def test_problem_when_a_measurement_is_null_then_it_is_not_measured(field: str) -> None:
    assert not getattr(problem_from_json(with_member(**{field: None})).members[1], field)


@pytest.mark.parametrize("field", ["block_s", "head_s"])
@pytest.mark.parametrize(
    "steps", [{"1": 0}, {"1": -1}, {"1": math.nan}, {"0": 1}, {"x": 1}, {"1.5": 1}, {"-1": 1}, [1], 3]
)
def test_problem_when_step_times_are_nonsense_then_field_and_member_are_named(field: str, steps: Any) -> None:
    sentence = bad(with_member(**{field: steps}))
    assert field in sentence
    assert "'Bo'" in sentence


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"blocks": 0}, "blocks"),
        ({"blocks": 1.5}, "blocks"),
        ({"blocks": 10**9}, "blocks"),
        ({"block_bytes": 0}, "block_bytes"),
        ({"block_bytes": None}, "block_bytes"),
        ({"block_bytes": [1] * 11}, "block_bytes"),
        ({"block_bytes": [1] * 11 + [-1]}, "block_bytes[11]"),
        ({"embed_bytes": -1}, "embed_bytes"),
        ({"unembed_bytes": None}, "unembed_bytes"),
        ({"tied": "yes"}, "tied"),
        ({"kv_window_tokens": [None] * 11 + [0]}, "kv_window_tokens[11]"),
        ({"no_cut_after": [12]}, "no_cut_after[0]"),
        ({"no_cut_after": 3}, "no_cut_after"),
        ({"layers": 3}, "layers"),
    ],
)
def test_problem_when_the_model_is_wrong_then_the_field_is_named(fields: Json, named: str) -> None:
    sentence = bad(problem([member("A")], model=model(**fields)))
    assert named in sentence
    assert "model" in sentence


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"context_tokens": 0}, "context_tokens"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": "4"}, "concurrency"),
        ({"anchor": "Z"}, "anchor"),
        ({"strategy": "best"}, "strategy"),
        ({"objective": "speed"}, "objective"),
        ({"reserve_bytes": -1}, "reserve_bytes"),
        ({"prompt_tokens": 0}, "prompt_tokens"),
        ({"require": ["Z"]}, "require"),
        ({"require": "A"}, "require"),
        ({"exclude": ["Z"]}, "exclude"),
        ({"exclude": ["A", "B"]}, "exclude"),
        ({"require": ["A"], "exclude": ["A"]}, "require"),
        ({"members": []}, "members"),
        ({"members": None}, "members"),
        ({"members": [member("A"), member("A")]}, "members"),
        ({"members": [{}]}, "name"),
        ({"members": ["A"]}, "members[0]"),
        ({"members": [member(f"m{n}") for n in range(65)]}, "members"),
        ({"concurency": 4}, "concurency"),
        ({"edges": [{"between": ["A", "Z"], "rtt_s": 1}]}, "between"),
        ({"edges": [{"between": ["A", "A"], "rtt_s": 1}]}, "between"),
        ({"edges": [{"between": ["A"], "rtt_s": 1}]}, "between"),
        ({"edges": [{"between": ["B", "A"], "rtt_s": 0}]}, "'A' and 'B': rtt_s"),
        ({"edges": [{"between": ["B", "A"], "path": "tunnel"}]}, "path"),
        ({"edges": [{"between": ["B", "A"]}, {"between": ["A", "B"]}]}, "edges"),
        ({"edges": [{"between": ["B", "A"], "bytes_per_s": 1e6}]}, "'A' and 'B': bytes_per_s"),
        ({"edges": [{"between": ["B", "A"], "bytes_per_s": {"C": 1e6}}]}, "bytes_per_s"),
        ({"edges": [{"between": ["B", "A"], "bytes_per_s": {"A": 0}}]}, "bytes_per_s"),
        ({"state_bytes": 0}, "state_bytes"),
        ({"model": None}, "model"),
        ({"model": 7}, "model"),
    ],
)
def test_problem_when_a_field_is_wrong_then_it_is_named(fields: Json, named: str) -> None:
    assert named in bad(problem([member("A"), member("B")]) | fields)


@pytest.mark.parametrize("given", [None, [], "x", 3])
def test_problem_when_it_is_no_object_then_it_is_refused(given: Any) -> None:
    assert "object" in bad(given)


def test_problem_when_nat_and_behaviours_are_both_given_then_it_is_refused() -> None:
    assert "'Bo'" in bad(with_member(mapping="unknown"))
    assert "filtering" in bad(with_member(nat=None, filtering="open"))


@pytest.mark.parametrize(
    ("nat", "mapping", "filtering"),
    [
        ("permissive", Mapping.ENDPOINT_INDEPENDENT, Filtering.ENDPOINT_INDEPENDENT),
        ("ordinary", Mapping.ENDPOINT_INDEPENDENT, Filtering.ADDRESS_AND_PORT_DEPENDENT),
        ("restrictive", Mapping.ADDRESS_AND_PORT_DEPENDENT, Filtering.ADDRESS_AND_PORT_DEPENDENT),
    ],
)
def test_problem_when_a_class_is_given_then_it_stands_for_two_behaviours(
    nat: str, mapping: Mapping, filtering: Filtering
) -> None:
    read = problem_from_json(with_member(nat=nat)).members[1]
    assert (read.mapping, read.filtering) == (mapping, filtering)


def test_problem_when_fields_are_left_out_then_the_defaults_hold() -> None:
    least = {"model": model(), "members": [member("B"), member("A")], "context_tokens": 10}
    read = problem_from_json(least)
    assert (read.anchor, read.concurrency) == ("B", 1)
    assert (read.strategy, read.objective) == (Strategy.KAFILA, Objective.LATENCY)
    assert problem_from_json({**least, "concurrency": 2}).objective is Objective.THROUGHPUT
    assert read.members[0].udp is True


def test_problem_when_everybody_is_required_then_all_stands_for_them() -> None:
    assert problem_from_json(problem([member("A"), member("B")], require=["all"])).require == {"A", "B"}
    assert problem_from_json(problem([member("A"), member("all")], require=["all"])).require == {"all"}


def test_problem_when_written_then_every_field_of_the_interface_is_there() -> None:
    edges = [{"between": ["Bo", "A"], "rtt_s": 0.5, "path": "relay"}]
    told = problem_to_json(problem_from_json(with_member(block_s={"8": 0.2, "1": 0.1}) | {"edges": edges}))
    assert told["members"][1]["block_s"] == {"1": 0.1, "8": 0.2}
    assert told["model"]["block_bytes"] == 10**9
    assert told["edges"] == [{"between": ["A", "Bo"], "rtt_s": 0.5, "path": "relay"}]
    quick = {**edges[0], "bytes_per_s": {"Bo": 1e6}}
    (edge,) = problem_from_json(told | {"edges": [quick]}).edges
    assert edge.bytes_per_s == (None, 1e6)
    assert problem_to_json(problem_from_json(told | {"edges": [quick]}))["edges"] == [{**quick, "between": ["A", "Bo"]}]
