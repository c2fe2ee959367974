"""A session whose members quantise while loading, from its terms to an answer: two whole nodes on loopback."""

import asyncio
import json
from bisect import bisect_left
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from kafila_planner import Plan, make_plan, problem_from_json
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import Refused
from kafila_sidecar.machine.node import LocalNode
from kafila_sidecar.runtime.mlx_thread import prefer_openblas
from tests.sidecar.machine.two_nodes import two_nodes

pytestmark = pytest.mark.mlx
prefer_openblas()

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.support.tiny import tiny_folder

    made = tmp_path_factory.mktemp("models")
    return tiny_folder(made / "bf16", dtype="bf16", seed=13, config={"eos_token_id": 258})


@pytest.fixture
async def nodes(tmp_path: Path, folder: Path) -> AsyncIterator[tuple[LocalNode, LocalNode]]:
    async with two_nodes(tmp_path, KAFILA_FOLDERS=str(folder.parent)) as both:  # both have it
        yield both


def weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


async def ready(node: LocalNode, session: str) -> pb.Session:
    async with asyncio.timeout(PATIENCE_S), aclosing(node.watch(pb.SessionRequest(session=session))) as snapshots:
        async for shown in snapshots:
            assert shown.state != "closed", shown.failure
            if shown.state == "ready":
                return shown
    raise AssertionError("the session ended")


def least_memory(problem: dict[str, Any]) -> int:
    """Bytes that the problem's one member has to lend."""

    def suffices(memory_bytes: int) -> bool:
        member = {**problem["members"][0], "memory_bytes": memory_bytes}
        return isinstance(make_plan(problem_from_json({**problem, "members": [member]})), Plan)

    return bisect_left(range(problem["members"][0]["memory_bytes"]), True, key=suffices)


async def failure(node: LocalNode, session: str) -> str:
    """Why the session was closed."""
    async with asyncio.timeout(PATIENCE_S), aclosing(node.watch(pb.SessionRequest(session=session))) as snapshots:
        return await anext(shown.failure async for shown in snapshots if shown.state == "closed")


async def test_session_when_created_with_bits_then_all_agree_hold_packed_blocks_and_answer(
    nodes: tuple[LocalNode, LocalNode], folder: Path
) -> None:
    ada, bob = nodes
    asked = pb.CreateSessionRequest(model=str(folder), members=2, require=["all"], context_tokens=64, quantize_bits=4)
    created = await ada.create(asked)
    offer = await bob.open(pb.OpenSessionRequest(code=created.code))
    assert offer.quantization == created.vehicle.quantization == "4-bit, made here from BF16"
    await bob.join(pb.JoinSessionRequest(session=offer.session))
    shown = [await ready(node, created.id) for node in nodes]
    assert 0 < sum(one.reserved_memory_bytes for one in shown) < weight_bytes(folder) / 3
    planned = await ada.plan(pb.PlanRequest(session=created.id))
    alone = await ada.plan(pb.PlanRequest(model=str(folder), context_tokens=64, quantize_bits=4))
    assert json.loads(planned.problem_json)["model"] == json.loads(alone.problem_json)["model"]
    assert alone.quantization == "4-bit, made here from BF16"
    for node in nodes:
        options = pb.Options(num_predict=4, temperature=0)  # a drawn token may be one that ends the answer
        request = pb.GenerateRequest(session=created.id, prompt="once", options=options, truncate=True)
        replies = [reply async for reply in node.generate(request)]
        assert replies[-1].output_tokens == 4


async def test_session_when_only_packed_weights_fit_then_its_refusal_names_the_option_that_helps(
    nodes: tuple[LocalNode, LocalNode], folder: Path
) -> None:
    ada, _ = nodes
    alone = await ada.plan(pb.PlanRequest(model=str(folder), context_tokens=64))
    too_little = least_memory(json.loads(alone.problem_json)) - 1
    asked = pb.CreateSessionRequest(model=str(folder), members=1, context_tokens=64, memory_bytes=too_little)
    assert "short: `--quantize 8`" in await failure(ada, (await ada.create(asked)).id)
    asked.quantize_bits = 8
    assert (await ready(ada, (await ada.create(asked)).id)).state == "ready"


async def test_session_when_the_checkpoint_is_quantised_already_then_refused_at_create(
    nodes: tuple[LocalNode, LocalNode], tmp_path: Path
) -> None:
    from tests.support.tiny import tiny_folder

    packed = tiny_folder(tmp_path / "packed", dtype="bf16", bits=4)
    with pytest.raises(Refused, match="quantised already: choose one in 16 bits"):
        await nodes[0].create(pb.CreateSessionRequest(model=str(packed), quantize_bits=8))
