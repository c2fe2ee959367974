"""A request's limits, and what is refused before anything is computed."""

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.serving.intake.limits import AnswerLimits, given_options, limits_of, refuse_unsupported


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (pb.Options(), AnswerLimits(100, None)),
        (pb.Options(num_ctx=0), AnswerLimits(100, None)),
        (pb.Options(num_ctx=50), AnswerLimits(50, None)),
        (pb.Options(num_ctx=1000), AnswerLimits(100, None)),
        (pb.Options(num_ctx=1), AnswerLimits(4, None)),
        (pb.Options(num_ctx=-5), AnswerLimits(4, None)),
        (pb.Options(num_predict=7), AnswerLimits(100, 7)),
        (pb.Options(num_predict=0), AnswerLimits(100, None)),
        (pb.Options(num_predict=-1), AnswerLimits(100, None)),
    ],
)
def test_limits_when_options_are_given_then_never_above_the_sessions(options: pb.Options, wanted: AnswerLimits) -> None:
    assert limits_of(options, 100) == wanted


def test_limits_when_an_answer_shifts_then_ten_contexts_at_most_and_what_is_kept() -> None:
    assert limits_of(pb.Options(), 100, shifts=True) == AnswerLimits(100, 1000, 4, True)
    assert limits_of(pb.Options(num_predict=5000, num_keep=-1), 100, shifts=True) == AnswerLimits(100, 1000, -1, True)
    limits = limits_of(pb.Options(num_predict=7, num_ctx=50, num_keep=60), 100, shifts=True)
    assert limits == AnswerLimits(50, 7, 60, True)
    assert [limits.reason_to_stop(50, 6), limits.reason_to_stop(50, 7)] == [False, True]
    assert limits.window(20).keep == 49
    assert limits_of(pb.Options(num_keep=-1), 100, shifts=True).window(20).keep == 20


@pytest.mark.parametrize(("total", "output", "stops"), [(99, 5, False), (100, 5, True), (50, 6, False), (50, 7, True)])
def test_reason_to_stop_when_context_or_answer_is_full_then_true(total: int, output: int, stops: bool) -> None:
    assert AnswerLimits(100, 7).reason_to_stop(total, output) is stops


@pytest.mark.parametrize("field", [{"images": 1}, {"top_logprobs": 21}])
def test_refuse_when_unsupported_then_it_is_named(field: dict[str, int]) -> None:
    refuse_unsupported(pb.GenerateRequest(prompt="x"))
    with pytest.raises(InvalidInput):
        refuse_unsupported(pb.GenerateRequest(**field))  # type: ignore[arg-type]


def test_given_options_when_some_are_set_then_those_and_no_others() -> None:
    given = given_options(pb.Options(temperature=0.0, top_k=0, stop=["x"]))
    assert given == {"temperature": 0.0, "top_k": 0, "stop": ["x"]}
