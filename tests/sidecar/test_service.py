"""The gRPC face on a unix socket: what a node raises becomes a status and one sentence."""

import asyncio
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import grpc
import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_proto import sidecar_pb2_grpc as rpc
from kafila_sidecar.errors import BY_CODE, Refused
from kafila_sidecar.machine.node import LocalNode
from kafila_sidecar.service import start_server


class FailingNode:
    """Says hello; every other call ends as it was told to, after `replies` replies where there are several."""

    def __init__(self, error: Exception | None = None, replies: int = 0) -> None:
        self.error = error
        self.replies = replies
        self.closed = asyncio.Event()

    async def hello(self) -> pb.HelloReply:
        return pb.HelloReply(version="1", pid=7)

    async def start(self, request: pb.SessionRequest) -> pb.Session:
        if self.error:
            raise self.error
        return pb.Session(id=request.session)

    async def list_sessions(self) -> pb.ListSessionsReply:
        if self.error:
            raise self.error
        return pb.ListSessionsReply()

    async def generate(self, request: pb.GenerateRequest) -> AsyncGenerator[pb.GenerateReply, None]:
        try:
            for i in range(self.replies):
                yield pb.GenerateReply(text=str(i))
            if self.error:
                raise self.error
            await asyncio.Event().wait()
        finally:
            self.closed.set()


@asynccontextmanager
async def serving(node: FailingNode, socket: Path) -> AsyncIterator[rpc.SidecarStub]:
    server = await start_server(cast(LocalNode, node), socket)
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        yield rpc.SidecarStub(channel)  # type: ignore[no-untyped-call]
    await server.stop(0)


async def test_server_when_started_then_only_this_user_can_open_the_socket(tmp_path: Path) -> None:
    socket = tmp_path / "folder" / "s.sock"
    async with serving(FailingNode(), socket) as stub:
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        assert (await stub.Hello(pb.HelloRequest())).pid == 7


async def test_server_when_an_old_socket_is_left_then_it_is_replaced(tmp_path: Path) -> None:
    socket = tmp_path / "s.sock"
    socket.touch()
    async with serving(FailingNode(), socket) as stub:
        assert (await stub.Hello(pb.HelloRequest())).pid == 7


async def test_server_when_the_path_is_too_long_for_a_socket_then_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="shorter path"):
        await start_server(cast(LocalNode, FailingNode()), tmp_path / ("x" * 200))


@pytest.mark.parametrize("code", sorted(BY_CODE))
async def test_call_when_the_node_refuses_then_code_and_sentence_arrive(tmp_path: Path, code: str) -> None:
    sentence = "model needs 41.2 GB, “three” members offer 36.0 GB: invite another"
    async with serving(FailingNode(BY_CODE[code](sentence)), tmp_path / "s.sock") as stub:
        for call in (stub.StartSession(pb.SessionRequest()), stub.ListSessions(pb.ListSessionsRequest())):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert (refused.value.code().name, refused.value.details()) == (code, sentence)


async def test_call_when_there_is_a_bug_then_internal_and_the_server_goes_on(tmp_path: Path) -> None:
    async with serving(FailingNode(KeyError("x" * 100_000)), tmp_path / "s.sock") as stub:
        for call in (stub.StartSession(pb.SessionRequest()), stub.ListSessions(pb.ListSessionsRequest())):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.INTERNAL
            assert "bug" in (refused.value.details() or "")
        assert (await stub.Hello(pb.HelloRequest())).pid == 7


async def collect(replies: AsyncIterator[pb.GenerateReply], texts: list[str]) -> None:
    async for reply in replies:
        texts.append(reply.text)


@pytest.mark.parametrize(
    ("error", "code"), [(BY_CODE["UNAVAILABLE"]("bob was lost"), "UNAVAILABLE"), (ValueError(), "INTERNAL")]
)
async def test_stream_when_it_breaks_then_what_came_and_the_error(tmp_path: Path, error: Exception, code: str) -> None:
    node = FailingNode(error, replies=3)
    async with serving(node, tmp_path / "s.sock") as stub:
        texts: list[str] = []
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await collect(stub.Generate(pb.GenerateRequest()), texts)
        assert texts == ["0", "1", "2"]
        assert refused.value.code().name == code
        assert node.closed.is_set()


@pytest.mark.parametrize("replies", [1, 2000])
async def test_stream_when_the_client_cancels_then_the_nodes_generator_is_closed(tmp_path: Path, replies: int) -> None:
    node = FailingNode(replies=replies)
    async with serving(node, tmp_path / "s.sock") as stub:
        call = stub.Generate(pb.GenerateRequest())
        assert (await call.read()).text == "0"
        call.cancel()
        async with asyncio.timeout(1):
            await node.closed.wait()
