"""A member checks the host's plan: it computes it too, and takes no other."""

import asyncio
import json
from typing import Any

import pytest

from kafila_planner import plan_to_json
from kafila_sidecar.errors import KafilaError, Refused
from kafila_sidecar.session.coordination.effects import Proposal
from kafila_sidecar.session.coordination.planning import check_proposal, propose
from tests.sidecar.session.driver_world import ENTRY, MODEL, TERMS
from tests.support.fuzz import INPUTS, mutations

OWN = {**ENTRY, "name": "bob"}
PROBLEM: dict[str, Any] = {
    **TERMS.fields(["ada", "bob"]),
    "anchor": "ada",
    "members": [{**ENTRY, "name": "ada"}, OWN],
    "edges": [{"between": ["ada", "bob"], "rtt_s": 0.01, "path": "direct"}],
}


async def planned(problem: Any) -> Any:
    """The plan of a problem, as the host tells it."""
    made = await propose(1, problem)
    assert isinstance(made, Proposal)
    return plan_to_json(made.plan)


async def check(problem: Any, plan: Any, *, own: Any = (OWN,)) -> None:
    await check_proposal(1, json.dumps(problem), json.dumps(plan), own=own, terms=TERMS, compute=True)


async def test_proposal_when_it_is_the_plan_of_its_problem_then_taken() -> None:
    plan = await planned(PROBLEM)
    await check(PROBLEM, plan)
    await check(PROBLEM, plan, own=())
    await check(PROBLEM, plan, own=[{**ENTRY, "name": "zoe"}])  # who came later
    await check(PROBLEM, plan, own=[OWN, {**OWN, "rtt_s": 0.5}])  # told anew meanwhile


async def test_proposal_when_anything_is_another_then_refused_in_words() -> None:
    plan = await planned(PROBLEM)
    stages = [{**stage, "resident_bytes": stage["resident_bytes"] + 1} for stage in plan["stages"]]
    gap = [{**stage, "start": stage["start"] + 1, "end": stage["end"] + 1} for stage in plan["stages"]]
    other = "bob" if plan["head"] == "ada" else "ada"
    refused = {"admitted": False, "reason": "no", "undersized": "bob", "missing_bytes": 1, "suggestions": []}
    for problem, proposed, sentence in (
        (PROBLEM, {**plan, "stages": stages}, "not the one that its problem gives"),
        (PROBLEM, {**plan, "circuit_s": 0.5}, "not the one that its problem gives"),
        (PROBLEM, {**plan, "head": other}, "can't be read"),
        (PROBLEM, {**plan, "stages": gap}, "can't be read"),
        ({**PROBLEM, "members": [{**ENTRY, "name": "ada"}, {**OWN, "memory_bytes": 1}]}, plan, "another measurement"),
        ({**PROBLEM, "model": {**MODEL, "blocks": 5}}, plan, "another model"),
        ({**PROBLEM, "context_tokens": 1}, plan, "other terms"),
        ({**PROBLEM, "require": ["ada"]}, plan, "other terms"),
        ({**PROBLEM, "objective": "paper"}, plan, "other terms"),
        (PROBLEM, refused, "did not admit"),
        ({"members": [{}]}, plan, "can't be read"),
        ({"members": 5}, plan, "can't be read"),
        ([], plan, "can't be read"),
        (PROBLEM, [], "can't be read"),
    ):
        with pytest.raises(Refused, match=sentence):
            await check(problem, proposed)


@pytest.mark.fuzz
async def test_proposal_when_bytes_are_hostile_then_typed() -> None:
    plan = json.dumps(await planned(PROBLEM))
    samples = [json.dumps(PROBLEM).encode(), plan.encode()]
    problem = json.dumps(PROBLEM)
    for number, data in enumerate(mutations(samples, seed=3, inputs=INPUTS)):
        text = data.decode("utf-8", "replace")
        pair = (text, plan) if number % 2 else (problem, text)
        try:
            await check_proposal(1, *pair, own=[OWN], terms=TERMS, compute=True)
        except KafilaError:
            continue
        assert json.loads(pair[1]) == json.loads(plan)


async def test_proposal_when_it_takes_long_then_the_loop_goes_on_meanwhile() -> None:
    checking = asyncio.ensure_future(check(PROBLEM, await planned(PROBLEM)))
    turns = 0
    while not checking.done():
        turns += 1
        await asyncio.sleep(0)
    await checking
    assert turns > 2
