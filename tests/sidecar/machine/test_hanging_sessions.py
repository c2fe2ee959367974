"""A model that stands still, seen by the other sessions of its process: one whole node on loopback, in two of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import TimedOut, Unavailable
from kafila_sidecar.machine.node import LocalNode
from kafila_sidecar.runtime.mlx_thread import prefer_openblas
from kafila_sidecar.runtime.model_threads import MOST_STILL
from tests.sidecar.machine.two_nodes import two_nodes
from tests.support.hanging import Hang

pytestmark = pytest.mark.mlx
prefer_openblas()

PATIENCE_S = 60.0
ENDS = ("ready", "closed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.support.tiny import tiny_folder

    return tiny_folder(tmp_path_factory.mktemp("models") / "tiny", dtype="f32", seed=13, config={"eos_token_id": 258})


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[tuple[LocalNode, LocalNode]]:
    async with two_nodes(tmp_path) as both:
        yield both


@pytest.fixture
def node(nodes: tuple[LocalNode, LocalNode]) -> LocalNode:
    return nodes[0]


async def ready(node: LocalNode, folder: Path) -> str:
    """The id of a session of this machine alone."""
    created = await node.create(pb.CreateSessionRequest(model=str(folder), members=1, context_tokens=64))
    async with asyncio.timeout(PATIENCE_S), aclosing(node.watch(pb.SessionRequest(session=created.id))) as snapshots:
        async for shown in snapshots:
            assert shown.state != "closed", shown.failure
            if shown.state == "ready":
                return created.id
    raise AssertionError("the session ended")


async def asked(node: LocalNode, session: str) -> str:
    options = pb.Options(num_predict=4, temperature=0)
    request = pb.GenerateRequest(session=session, prompt="once", options=options, truncate=True)
    async with asyncio.timeout(PATIENCE_S):
        return "".join([reply.text async for reply in node.generate(request)])


@asynccontextmanager
async def hanging(node: LocalNode, session: str) -> AsyncIterator[Hang]:
    """The next prompt that is read in that session stands still until the block is left."""
    shard: Any = node._sessions.find(session).taken.stage._holding.shard
    hang, real = Hang(), shard.embed_and_blocks

    def embed_and_blocks(*given: Any, **named: Any) -> Any:
        hang()
        return real(*given, **named)

    shard.embed_and_blocks = embed_and_blocks
    try:
        yield hang
    finally:
        hang.may_end.set()


async def test_session_when_another_ones_model_hangs_then_it_answers_meanwhile(node: LocalNode, folder: Path) -> None:
    first, second = await ready(node, folder), await ready(node, folder)
    expected = await asked(node, second)
    async with hanging(node, first) as hang:
        stuck = asyncio.create_task(asked(node, first))
        assert await asyncio.to_thread(hang.runs.wait, PATIENCE_S)
        assert await asked(node, second) == expected
        assert not stuck.done()
    assert await stuck == expected


async def closed(node: LocalNode, session: str) -> str:
    """Why it was."""
    async with asyncio.timeout(PATIENCE_S), aclosing(node.watch(pb.SessionRequest(session=session))) as snapshots:
        return await anext(shown.failure async for shown in snapshots if shown.state == "closed")


async def test_session_when_its_model_hangs_past_the_deadline_then_told_and_others_go_on_and_come(
    node: LocalNode, folder: Path
) -> None:
    first, second = await ready(node, folder), await ready(node, folder)
    expected = await asked(node, second)
    part = node._sessions.find(first).taken
    serving = part.stage._epochs.epoch
    assert serving is not None
    serving.mlx._floor_s = 0.5
    async with hanging(node, first):
        stuck = asyncio.create_task(asked(node, first))
        assert "ada's model has not moved for " in await closed(node, first)
        with pytest.raises(TimedOut, match="ada's model has not moved for "):
            await stuck
        assert await asked(node, second) == expected
        assert await asked(node, await ready(node, folder)) == expected
        assert "kafila_sequences" in (await node.metrics()).text
        assert part.stage.weight_bytes > 0
    async with asyncio.timeout(PATIENCE_S):
        while part.stage.weight_bytes:  # noqa: ASYNC110  # freed where it stood still, which tells nobody
            await asyncio.sleep(0.01)


async def test_join_when_too_many_models_stand_still_then_refused_and_this_machine_is_in_no_session(
    nodes: tuple[LocalNode, LocalNode], folder: Path, tmp_path: Path
) -> None:
    ada, bob = nodes
    created = await ada.create(pb.CreateSessionRequest(model=str(folder), members=2, context_tokens=64))
    offer = await bob.open(pb.OpenSessionRequest(code=created.code))
    threads, hang = bob._equipment.threads, Hang()
    lent = [threads.lend() for _ in range(MOST_STILL)]
    for thread in lent:
        thread.start(hang)
        threads.give_back(thread, rest_s=0.0)
    with pytest.raises(Unavailable, match="models stand still on this machine"):
        await bob.join(pb.JoinSessionRequest(session=offer.session))
    assert not (await bob.list_sessions()).sessions
    assert not list((tmp_path / "bob" / "sessions").iterdir())
    hang.may_end.set()
    again = await bob.open(pb.OpenSessionRequest(code=created.code))
    await bob.join(pb.JoinSessionRequest(session=again.session))
    async with asyncio.timeout(PATIENCE_S), aclosing(ada.watch(pb.SessionRequest(session=created.id))) as snapshots:
        assert await anext(shown.state async for shown in snapshots if shown.state in ENDS) == "ready"
