"""What people are told of a new plan: who takes over what."""

import pytest

from kafila_planner import make_plan, problem_from_json
from kafila_planner.model.types import Plan
from kafila_sidecar.session.coordination.effects import Proposal
from kafila_sidecar.session.loss.repair import in_words, seconds, size

GB = 10**9
MODEL = {
    "blocks": 12,
    "block_bytes": GB,
    "embed_bytes": GB,
    "unembed_bytes": GB,
    "kv_bytes_per_token_per_block": 0,
}


def proposal(*shares: tuple[str, int, dict[str, object]]) -> Proposal:
    """Members in name order, each with the memory for so many blocks, and what it holds."""
    members = [
        {
            "name": name,
            "nat": "permissive",
            "rtt_s": 0.01,
            "bandwidth_bytes_per_s": 100 * GB,
            "overhead_s": 0.001,
            "memory_bytes": blocks * GB + (2 * GB if place == 0 else 0),
            "holds": holds,
        }
        for place, (name, blocks, holds) in enumerate(shares)
    ]
    problem = problem_from_json({"model": MODEL, "objective": "latency", "members": members})
    made = make_plan(problem)
    assert isinstance(made, Plan)
    return Proposal(1, problem, made)


def keeps(start: int, end: int, *, disk: tuple[int, int] = (0, 0), head: bool = False) -> dict[str, object]:
    return {
        "memory_blocks": [[start, end]],
        "disk_blocks": [list(disk)] if disk[0] < disk[1] else [],
        "memory_head": head,
        "fetch_bytes_per_s": 1e8,
        "load_bytes_per_s": 1e9,
    }


THREE = proposal(("a", 4, keeps(0, 4, head=True)), ("b", 4, keeps(4, 8)), ("c", 4, keeps(8, 12)))


def test_repair_when_a_member_was_lost_then_it_says_who_takes_over_what_and_how_long_that_takes() -> None:
    after = proposal(("a", 4, keeps(0, 4, head=True)), ("c", 8, keeps(8, 12)))
    said = in_words(THREE, after, {"b": "lost"})
    assert said == "b was lost: c takes over blocks 4 to 7 (4.0 GB, about 44 s)"


@pytest.mark.parametrize(
    ("gone", "want"),
    [
        ({"b": "left"}, "b has left: "),
        ({"b": "removed", "z": "lost"}, "b was removed: "),
        ({"b": "lost", "c": "lost"}, "b and c were lost: "),
        ({"b": "left", "c": "lost"}, "b has left and c was lost: "),
    ],
)
def test_repair_when_members_went_then_it_says_how(gone: dict[str, str], want: str) -> None:
    after = proposal(("a", 12, keeps(0, 4, head=True)))
    assert in_words(THREE, after, gone).startswith(f"{want}a takes over blocks 4 to 11 ")


def test_repair_when_the_bytes_are_on_the_disk_then_only_loading_is_told() -> None:
    after = proposal(("a", 4, keeps(0, 4, head=True)), ("c", 8, keeps(8, 12, disk=(4, 8))))
    said = in_words(THREE, after, {"b": "lost"})
    assert said == "b was lost: c takes over blocks 4 to 7 (4.0 GB on its disk, about 4 s)"


def test_repair_when_the_head_was_lost_then_it_says_who_is_the_head_now() -> None:
    after = proposal(("b", 8, keeps(4, 8)), ("c", 4, keeps(8, 12)))
    said = in_words(THREE, after, {"a": "lost"})
    assert said.startswith("a was lost: b takes over blocks 0 to 3 and the head (6.0 GB, about")


def test_repair_when_nobody_was_lost_then_it_is_another_plan() -> None:
    newcomer = keeps(0, 0) | {"memory_blocks": []}
    after = proposal(
        ("a", 4, keeps(0, 4, head=True)), ("b", 3, keeps(4, 8)), ("c", 4, keeps(8, 12)), ("d", 4, newcomer)
    )
    said = in_words(THREE, after, {})
    assert said.startswith("there is another plan: ")
    assert "d takes over block" in said


def test_repair_when_nothing_moves_or_nothing_stood_then_nothing_is_said() -> None:
    assert in_words(THREE, THREE, {}) == ""
    assert in_words(None, THREE, {}) == ""


@pytest.mark.parametrize(
    ("told", "want"),
    [
        (size(1_240_000_000), "1.2 GB"),
        (size(3_000_000), "3.0 MB"),
        (seconds(0.01), "1 s"),
        (seconds(640.0), "11 minutes"),
    ],
)
def test_figures_when_told_then_they_are_for_people(told: str, want: str) -> None:
    assert told == want
