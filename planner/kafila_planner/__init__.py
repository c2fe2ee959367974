"""Who takes part in a session, who holds which blocks, in which order, and who is the head.

Pure functions over frozen values, standard library only: no clock, log, random number or port. Equal plans are told
apart by names, so every member that computes the plan gets the same one. For the same reason floats are added by
`math.fsum` or one by one, never by `sum`, whose rounding differs between versions of Python.

Imports go down: correction, rows and plan, moving and report, settle, search, division and ring side by side,
admission, model. `json` knows only the model and the errors, and nothing but `__main__` and this file knows `json`.
"""

from kafila_planner.errors import BadInput, BadPlan, BadProblem
from kafila_planner.json.decode_plan import plan_from_json
from kafila_planner.json.decode_problem import member_from_json, problem_from_json
from kafila_planner.json.encode import member_to_json, plan_to_json, problem_to_json
from kafila_planner.model.runs import RowsPace, rows_for
from kafila_planner.model.types import (
    HeldParts,
    Idle,
    MeasuredEdge,
    Model,
    Node,
    Plan,
    PlannedHop,
    PlannedStage,
    Problem,
    Refusal,
)
from kafila_planner.moving.toll import Toll
from kafila_planner.moving.tolls import StageToll, tolls_of, wait_s
from kafila_planner.plan import make_plan
from kafila_planner.rows import chunk_beside, chunking, first_token_s, paces, run_s, tokens_per_s
from kafila_planner.version import PLANNER_VERSION

__all__ = [
    "PLANNER_VERSION",
    "BadInput",
    "BadPlan",
    "BadProblem",
    "HeldParts",
    "Idle",
    "MeasuredEdge",
    "Model",
    "Node",
    "Plan",
    "PlannedHop",
    "PlannedStage",
    "Problem",
    "Refusal",
    "RowsPace",
    "StageToll",
    "Toll",
    "chunk_beside",
    "chunking",
    "first_token_s",
    "make_plan",
    "member_from_json",
    "member_to_json",
    "paces",
    "plan_from_json",
    "plan_to_json",
    "problem_from_json",
    "problem_to_json",
    "rows_for",
    "run_s",
    "tokens_per_s",
    "tolls_of",
    "wait_s",
]
