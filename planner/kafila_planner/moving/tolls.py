"""What a plan takes to come about, stage by stage: for people, and for the seconds until it serves."""

from dataclasses import dataclass

from kafila_planner.model.types import Plan, Problem
from kafila_planner.moving.toll import Toll, gate_of


@dataclass(frozen=True, slots=True)
class StageToll:
    """Of one member's stage."""

    member: str
    toll: Toll


def tolls_of(problem: Problem, plan: Plan) -> tuple[StageToll, ...]:
    """In the plan's order, by what its members hold in the problem; by assumed rates where none were measured."""
    members = {member.name: member for member in problem.members}
    return tuple(
        StageToll(
            stage.member,
            gate_of(problem.model, members[stage.member]).toll(stage.start, stage.end, stage.member == plan.head),
        )
        for stage in plan.stages
    )


def wait_s(problem: Problem, plan: Plan) -> float:
    """Seconds until the last of a plan's stages is loaded; they come side by side."""
    return max(stage.toll.seconds for stage in tolls_of(problem, plan))
