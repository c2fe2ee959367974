"""The sidecar's gRPC face: one call in, one call to the node, one answer out; every error is told here, once."""

import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import grpc
from grpc.aio import ServicerContext as Context

from kafila_proto import sidecar_pb2 as pb
from kafila_proto import sidecar_pb2_grpc
from kafila_sidecar.errors import KafilaError, Refused
from kafila_sidecar.foreign import line
from kafila_sidecar.lack import as_typed
from kafila_sidecar.machine.node import LocalNode
from kafila_sidecar.said import check_said
from kafila_sidecar.serving.intake.limits import MOST_REQUEST_BYTES

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_MESSAGE_BYTES = MOST_REQUEST_BYTES + (64 << 10)  # what is a little too large is refused in words
HEADER_BYTES = 8 * 1024  # of a call; the server's have some 200
_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", HEADER_BYTES),
    ("grpc.absolute_max_metadata_size", HEADER_BYTES),
]


class SidecarService(sidecar_pb2_grpc.SidecarServicer):
    """Answers the Ollama server on the same machine."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node

    async def Hello(self, request: pb.HelloRequest, context: Context) -> pb.HelloReply:
        return await _answer(context, self._node.hello)

    async def CreateSession(self, request: pb.CreateSessionRequest, context: Context) -> pb.Session:
        return await _answer(context, self._node.create, request)

    async def OpenSession(self, request: pb.OpenSessionRequest, context: Context) -> pb.Offer:
        return await _answer(context, self._node.open, request)

    async def JoinSession(self, request: pb.JoinSessionRequest, context: Context) -> pb.Session:
        return await _answer(context, self._node.join, request)

    async def StartSession(self, request: pb.SessionRequest, context: Context) -> pb.Session:
        return await _answer(context, self._node.start, request)

    async def ChoosePlan(self, request: pb.ChoosePlanRequest, context: Context) -> pb.Session:
        return await _answer(context, self._node.choose, request)

    async def Replan(self, request: pb.SessionRequest, context: Context) -> pb.Session:
        return await _answer(context, self._node.replan, request)

    async def SetReplanning(self, request: pb.ReplanningRequest, context: Context) -> pb.Session:
        return await _answer(context, self._node.set_replanning, request)

    async def LeaveSession(self, request: pb.LeaveRequest, context: Context) -> pb.LeaveSessionReply:
        return await _answer(context, self._node.leave, request)

    async def NewCode(self, request: pb.SessionRequest, context: Context) -> pb.Session:
        return await _answer(context, self._node.new_code, request)

    async def Lock(self, request: pb.LockRequest, context: Context) -> pb.Session:
        return await _answer(context, self._node.lock, request)

    async def Kick(self, request: pb.KickRequest, context: Context) -> pb.Session:
        return await _answer(context, self._node.kick, request)

    async def ListSessions(self, request: pb.ListSessionsRequest, context: Context) -> pb.ListSessionsReply:
        return await _answer(context, self._node.list_sessions)

    async def Plan(self, request: pb.PlanRequest, context: Context) -> pb.PlanReply:
        return await _answer(context, self._node.plan, request)

    async def ShowModel(self, request: pb.SessionRequest, context: Context) -> pb.ModelCard:
        return await _answer(context, self._node.show_model, request)

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsReply:
        return await _answer(context, self._node.list_models)

    async def ListWeights(self, request: pb.ListWeightsRequest, context: Context) -> pb.ListWeightsReply:
        return await _answer(context, self._node.list_weights)

    async def RemoveWeights(self, request: pb.RemoveWeightsRequest, context: Context) -> pb.FreedReply:
        return await _answer(context, self._node.remove_weights, request)

    async def PruneWeights(self, request: pb.PruneWeightsRequest, context: Context) -> pb.FreedReply:
        return await _answer(context, self._node.prune_weights, request)

    async def Doctor(self, request: pb.DoctorRequest, context: Context) -> pb.DoctorReply:
        return await _answer(context, self._node.doctor, request)

    async def Metrics(self, request: pb.MetricsRequest, context: Context) -> pb.MetricsReply:
        return await _answer(context, self._node.metrics)

    async def Traces(self, request: pb.TracesRequest, context: Context) -> pb.TracesReply:
        return await _answer(context, self._node.traces, request)

    async def WatchSession(self, request: pb.SessionRequest, context: Context) -> AsyncGenerator[pb.Session, None]:
        async for session in _stream(context, self._node.watch, request):
            yield session

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> AsyncGenerator[pb.GenerateReply, None]:
        async for reply in _stream(context, self._node.generate, request):
            yield reply


async def _answer(context: Context, call: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    try:
        for asked in arguments:
            check_said(asked)
        return await call(*arguments)
    except Exception as error:
        await _abort(context, error)
        raise


async def _stream(
    context: Context, call: Callable[..., AsyncGenerator[T, None]], *arguments: Any
) -> AsyncGenerator[T, None]:
    try:
        async with aclosing(call(*arguments)) as source:
            async for item in source:
                yield item
    except Exception as error:
        await _abort(context, error)
        raise


async def _abort(context: Context, error: Exception) -> None:
    """Ends the call with the error's code and sentence, as what is lacking has one; else it is a bug, which the log
    shows whole."""
    code, sentence = KafilaError.code, f"a bug in the sidecar ended this call, its log says more: {error!r}"
    if typed := as_typed(error):
        code, sentence = typed.code, str(typed)
        log.info("call_refused code=%s", code)
    else:
        log.error("call_failed", exc_info=error)
    await context.abort(getattr(grpc.StatusCode, code), line(sentence))


async def start_server(node: LocalNode, socket: Path) -> grpc.aio.Server:
    """Serves on a unix socket that only this user can open.

    Raises OSError when the socket's folder can't be written, Refused when nothing can be bound there.
    """
    server = grpc.aio.server(options=_OPTIONS)
    sidecar_pb2_grpc.add_SidecarServicer_to_server(SidecarService(node), server)  # type: ignore[no-untyped-call]
    with _private_socket(socket):
        try:
            server.add_insecure_port(f"unix:{quote(os.fsencode(socket))}")
        except RuntimeError as error:  # all that grpc says
            raise Refused(
                f"can't serve on the socket {socket}: choose a shorter path, in a folder of your own"
            ) from error
        await server.start()
    return server


@contextmanager
def _private_socket(socket: Path) -> Iterator[None]:
    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
