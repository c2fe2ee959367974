"""A member checks the host's plan: it computes it too, and takes no other."""

import asyncio
import json
from typing import Any

import pytest

from kafila_planner import Plan, Refusal, make_plan, plan_to_json, problem_from_json
from kafila_sidecar.errors import KafilaError, Refused
from kafila_sidecar.session.coordination.effects import Json, Proposal
from kafila_sidecar.session.coordination.planning import advised, check_proposal, propose
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
        ({**PROBLEM, "strategy": "uniform"}, plan, "other terms"),
        ({**PROBLEM, "objective": "paper"}, plan, "not the one that its problem gives"),
        (PROBLEM, refused, "did not admit"),
        ({"members": [{}]}, plan, "can't be read"),
        ({"members": 5}, plan, "can't be read"),
        ([], plan, "can't be read"),
        (PROBLEM, [], "can't be read"),
    ):
        with pytest.raises(Refused, match=sentence):
            await check(problem, proposed)


SMALL: dict[str, Any] = {
    **PROBLEM,
    "context_tokens": 1,
    "require": ["ada"],
    "members": [{**ENTRY, "name": "ada"}],
    "edges": [],
}
"""For one member, who has room for all."""


def packed(share: float) -> Json:
    """What the problem says instead where the weights come to a share of their bytes."""
    return {"model": {**MODEL, **{key: int(MODEL[key] * share) for key in MODEL if key.endswith("_bytes")}}}


def refused(room: float) -> tuple[Json, Refusal]:
    """A problem whose member has so much of what the weights take."""
    weights = MODEL["blocks"] * MODEL["block_bytes"] + MODEL["embed_bytes"] + MODEL["unembed_bytes"]
    small = {**SMALL, "members": [{**ENTRY, "name": "ada", "memory_bytes": int(weights * room)}]}
    made = make_plan(problem_from_json(small))
    assert isinstance(made, Refusal)
    return small, made


PACKINGS: dict[str, tuple[float, dict[int, Json], int | None]] = {
    "8 bits will do": (0.8, {8: packed(0.5), 4: packed(0.25)}, 8),
    "4 bits will do": (0.4, {8: packed(0.5), 4: packed(0.25)}, 4),
    "nothing will do": (0.1, {8: packed(0.5), 4: packed(0.25)}, None),
    "its matrices are few": (0.8, {8: packed(0.95), 4: packed(0.9)}, None),
    "packed already": (0.8, {}, None),
}


@pytest.mark.parametrize("name", PACKINGS)
async def test_refusal_when_packing_while_loading_would_do_then_named_first_and_never_guessed(name: str) -> None:
    room, by_bits, expected = PACKINGS[name]
    problem, refusal = refused(room)

    async def packings() -> dict[int, Json]:
        return by_bits

    told = await advised(problem, refusal, packings)
    named = [bits for bits in (8, 4) if any(f"--quantize {bits}" in one for one in told.suggestions)]
    assert named == ([] if expected is None else [expected])
    for bits in named:
        assert "--quantize" in told.suggestions[0]
        assert isinstance(make_plan(problem_from_json({**problem, **by_bits[bits]})), Plan)
    assert told.suggestions
    assert not any("a checkpoint quantised" in one for one in told.suggestions)
    assert (told.reason, told.undersized, told.missing_bytes) == (
        refusal.reason,
        refusal.undersized,
        refusal.missing_bytes,
    )


async def test_refusal_when_the_problem_cannot_be_read_then_it_stays_as_it_is() -> None:
    made = await propose(1, {"members": 5})
    assert isinstance(made, Refusal)

    async def packings() -> dict[int, Json]:
        raise AssertionError

    assert await advised({"members": 5}, made, packings) is made


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
