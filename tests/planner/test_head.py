"""Which member is the head under the objective `paper`."""

import pytest

from tests.planner.problems import GB, counts, member, model, plan, problem


def pair(anchor_head_s: float, other_head_s: float, memory_bytes: int = 100 * GB) -> list[dict[str, object]]:
    """Equal but for the head, which is most of a stage."""
    times = {"A": anchor_head_s, "B": other_head_s}
    return [member(name, head_s={"1": times[name]}, memory_bytes=memory_bytes) for name in "AB"]


SMALL = model(blocks=2, block_bytes=GB)


@pytest.mark.parametrize(("gain", "head"), [(0.0, "A"), (0.04, "A"), (0.0499, "A"), (0.06, "B"), (0.5, "B")])
def test_head_when_another_would_gain_then_only_over_five_per_cent_moves_it(gain: float, head: str) -> None:
    """Each has one block and 11 ms without the head."""
    bottleneck = 0.011 + 0.100
    other = bottleneck * (1 - gain) - 0.011
    assert plan(problem(pair(0.100, other), model=SMALL)).head == head


def test_head_when_the_anchor_can_not_hold_it_then_another_does() -> None:
    crowd = [member("A", memory_bytes=4 * GB), member("B")]
    found = plan(problem(crowd))
    assert found.head == "B"
    assert found.order == ("B", "A")
    assert counts(found)[1] <= 4


def test_head_when_it_moves_then_the_ring_stays() -> None:
    crowd = [
        member("A", rtt_s=0.010),
        member("B", rtt_s=0.020),
        member("C", rtt_s=0.030, head_s={"1": 1e-6}),
        member("D", rtt_s=0.040),
    ]
    found = plan(problem(crowd, model=model(blocks=4)))
    assert found.head == "C"
    assert found.order == ("C", "D", "A", "B")
    assert found.stages[0].start == 0


def test_head_when_two_others_are_equally_good_then_the_first_by_name() -> None:
    crowd = [member("A"), member("C", head_s={"1": 1e-6}), member("B", head_s={"1": 1e-6})]
    assert plan(problem(crowd, model=model(blocks=3), anchor="A")).head == "B"


def test_head_when_it_holds_the_matrices_then_its_limit_is_smaller() -> None:
    found = plan(problem([member("A", memory_bytes=9 * GB), member("B", memory_bytes=9 * GB)]))
    assert [stage.limit_blocks for stage in found.stages] == [5, 9]
