"""By which of its calms `make soak` judges memory."""

import pytest

from bench.soak import CalmWeights, longest_with_one_plan


@pytest.mark.parametrize(
    ("held", "judged"),
    [("", []), ("a", [0]), ("aab", [0, 1]), ("abbb", [1, 2, 3]), ("aabaaa", [3, 4, 5]), ("aabb", [0, 1])],
)
def test_memory_when_plans_change_then_judged_by_the_longest_time_of_one(held: str, judged: list[int]) -> None:
    calms = [CalmWeights((ord(plan), 7), {"a process": at}) for at, plan in enumerate(held)]
    assert [calm.rss_bytes["a process"] for calm in longest_with_one_plan(calms)] == judged
