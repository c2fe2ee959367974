"""The plan promises what the engine does: it reckons with no more sequences in a run than a stage's runs hold."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafila_planner import Plan, make_plan, problem_from_json
from kafila_sidecar.machine.measuring import Measuring
from kafila_sidecar.runtime.footprint import MOST_ROWS_A_RUN
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.serving.worker import Bounds
from kafila_sidecar.weights.checkpoint import Checkpoint, open_checkpoint
from kafila_sidecar.weights.providers.hub import Hub
from tests.sidecar.serving.rings import Round

pytestmark = pytest.mark.mlx

USERS = 8


async def rows_in_a_run() -> int:
    """The most rows that a stage runs at once when all users' frames wait for it."""
    made = Round(
        workers=1,
        rows=lambda users: min(users, MOST_ROWS_A_RUN),
        bounds=Bounds(sequences=USERS, tokens=64, chunk_tokens=64),
    )
    await asyncio.gather(*(made.token(sequence, 0) for sequence in range(USERS)))
    for position in range(1, 5):
        await asyncio.gather(*(made.token(sequence, position) for sequence in range(USERS)))
    await made.end()
    return made.shards[0].most_rows


def batch_planned(checkpoint: Checkpoint, entry: Any) -> int:
    members = [{**entry, "name": name, "rtt_s": 0.001} for name in ("ada", "bob")]
    problem = {"model": checkpoint.sizes, "context_tokens": 64, "concurrency": USERS, "members": members}
    plan = make_plan(problem_from_json({**problem, "require": ["all"]}))
    assert isinstance(plan, Plan)
    return plan.batch


async def test_plan_when_made_of_what_members_tell_then_its_batch_is_one_that_the_engine_runs(
    tiny: Path, tmp_path: Path
) -> None:
    mlx = MlxThread()
    checkpoint = await open_checkpoint(str(tiny), hub=Hub(endpoint="http://127.0.0.1:9"), cache=tmp_path)
    entry, _ = await Measuring(mlx=mlx, folder=tmp_path, reserved=lambda: 0).member(checkpoint, lend_bytes=0)
    mlx.close()
    most_rows = await rows_in_a_run()
    told = {int(batch) for times in (entry["block_s"], entry["head_s"] or {}) for batch in times}
    assert max(told) <= most_rows
    assert batch_planned(checkpoint, entry) <= most_rows
    alone_s = entry["block_s"]["1"]
    gaining = {**entry, "block_s": {"1": alone_s, str(USERS): 1.1 * alone_s}}
    assert batch_planned(checkpoint, gaining) > 1  # were it told so
