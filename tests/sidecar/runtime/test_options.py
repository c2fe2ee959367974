from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.text.options import SamplingOptions, checkpoint_defaults, resolve, unusable


def test_options_when_nobody_says_anything_then_ollamas() -> None:
    assert resolve({}, {}) == SamplingOptions(temperature=0.8, top_k=40, top_p=0.9, repeat_penalty=1.0)


def test_options_when_request_and_checkpoint_differ_then_the_requests() -> None:
    checkpoint = {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.05, "eos_token_id": 2}
    assert resolve({"temperature": 0.0}, checkpoint) == SamplingOptions(temperature=0, top_k=20, repeat_penalty=1.05)


def test_options_when_others_than_sampling_are_given_then_passed_over() -> None:
    assert resolve({"num_ctx": 4096, "stop": ["x"]}, {}) == SamplingOptions()


@pytest.mark.parametrize(("given", "seed"), [(None, None), (-1, None), (0, 0), (42, 42)])
def test_seed_when_minus_one_or_none_then_left_to_chance(given: int | None, seed: int | None) -> None:
    assert resolve({} if given is None else {"seed": given}, {}).seed == seed


@pytest.mark.parametrize("wrong", [{"temperature": nan}, {"top_p": inf}, {"repeat_penalty": inf}], ids=str)
def test_options_when_they_are_no_numbers_then_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        resolve(wrong, {})


@pytest.mark.parametrize(
    ("given", "counts_as"),
    [
        ({"temperature": -1.0}, {"temperature": 0.0}),
        ({"min_p": 2.0}, {"min_p": 1.0}),
        ({"min_p": -1.0}, {"min_p": 0.0}),
        ({"repeat_penalty": 0.0}, {"repeat_penalty": 1.0}),
        ({"repeat_penalty": -3.0}, {"repeat_penalty": 1.0}),
        ({"top_p": 0.0}, {"temperature": 0.0, "top_p": 0.0}),
        ({"top_p": -2.0, "temperature": 1.0}, {"temperature": 0.0, "top_p": -2.0}),
        ({"top_p": 7.0}, {"top_p": 7.0}),
        ({"top_k": -5}, {"top_k": -5}),
    ],
    ids=str,
)
def test_options_when_out_of_range_then_as_stock_has_them(given: dict[str, Any], counts_as: dict[str, Any]) -> None:
    assert resolve(given, {}) == replace(SamplingOptions(), **counts_as)


@given(st.dictionaries(st.sampled_from(["temperature", "top_p", "min_p", "repeat_penalty"]), st.floats(-1e6, 1e6)))
def test_options_whatever_finite_numbers_are_given_then_none_is_refused(given: dict[str, Any]) -> None:
    resolve(given, {})


@pytest.mark.parametrize(
    ("checkpoint", "defaults"),
    [
        ({"temperature": 0.2, "top_p": 0.9, "do_sample": True}, {"temperature": 0.2, "top_p": 0.9}),
        ({"temperature": 0.2, "do_sample": False}, {"temperature": 0.0}),
        ({"temperature": None, "top_k": "many", "seed": 3}, {}),
        ({"temperature": "0.6", "top_k": "20", "top_p": 1}, {"temperature": 0.6, "top_k": 20.0, "top_p": 1}),
        ({"temperature": nan, "top_p": inf, "min_p": "nan", "top_k": 10**400}, {}),
        ({"temperature": -1, "min_p": 2, "repetition_penalty": 0, "top_k": [40]}, {}),
        ({"temperature": True, "top_p": {}, "min_p": ""}, {}),
    ],
)
def test_checkpoint_defaults_when_read_then_by_ollamas_names(
    checkpoint: dict[str, Any], defaults: dict[str, float]
) -> None:
    assert checkpoint_defaults(checkpoint) == defaults | {"repeat_penalty": 1.0}


junk = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text("-1e.xn", max_size=4)
    | st.lists(st.integers(), max_size=2)
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*SamplingOptions.__slots__, "repetition_penalty", "do_sample"]), junk))
def test_checkpoint_defaults_when_of_any_kind_then_never_a_requests_fault(checkpoint: dict[str, Any]) -> None:
    options = resolve({}, checkpoint)
    assert resolve({}, {key: value for key, value in checkpoint.items() if key not in unusable(checkpoint)}) == options
