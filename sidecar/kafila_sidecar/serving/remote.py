"""A request that was typed on another member than the head: one stream there and back; a reset cancels it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from google.protobuf.message import DecodeError

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput, KafilaError, Unavailable, from_code
from kafila_sidecar.lack import as_typed
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream, StreamKind

REQUEST_DEADLINE_S = 30.0  # from the stream's opening to the request
SILENCE_DEADLINE_S = 1260.0  # the longest wait for a free sequence and the longest prompt, together

Generate = Callable[[pb.GenerateRequest, int], AsyncGenerator[pb.GenerateReply, None]]  # the int: the asker's epoch


async def ask(link: Link, request: pb.GenerateRequest, epoch: int) -> Stream:
    """Sends a request to the head.

    Raises:
        Unavailable: the link broke.
    """
    stream = await link.open(StreamKind.REQUEST)
    try:
        await stream.send(ring_pb2.Request(epoch=epoch, generate=request.SerializeToString()).SerializeToString())
    except BaseException:
        stream.reset()
        raise
    return stream


async def replies(stream: Stream) -> AsyncGenerator[pb.GenerateReply, None]:
    """The head's answer.

    Raises:
        KafilaError: what the head refused with, or the stream broke.
    """
    while (message := await stream.receive(SILENCE_DEADLINE_S)) is not None:
        reply = _read_reply(message, stream.peer)
        yield reply
        if reply.done:
            return
    raise Unavailable(f"{stream.peer} ended the answer too early")


async def answer(stream: Stream, generate: Generate) -> None:
    """Serves one request on the head. The asker's reset ends the generation.

    Raises:
        KafilaError: the stream broke.
    """
    request, epoch = await _read_request(stream)
    answering = asyncio.ensure_future(_send_answer(stream, generate(request, epoch)))
    gone = asyncio.ensure_future(_until_given_up(stream))
    try:
        await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            await answering
    finally:
        for task in (answering, gone):
            task.cancel()
        await asyncio.wait((answering, gone))


def _read_reply(message: bytes, peer: str) -> pb.GenerateReply:
    try:
        answer = ring_pb2.Answer.FromString(message)
        reply = pb.GenerateReply.FromString(answer.reply)
    except DecodeError as error:
        raise Unavailable(f"an answer of {peer} can't be read") from error
    if answer.HasField("refusal"):
        raise from_code(answer.refusal.code, answer.refusal.sentence)
    return reply


async def _read_request(stream: Stream) -> tuple[pb.GenerateRequest, int]:
    message = await stream.receive(REQUEST_DEADLINE_S)
    try:
        request = ring_pb2.Request.FromString(message or b"")
        return pb.GenerateRequest.FromString(request.generate), request.epoch
    except DecodeError as error:
        raise InvalidInput(f"a request of {stream.peer} can't be read") from error


async def _send_answer(stream: Stream, source: AsyncGenerator[pb.GenerateReply, None]) -> None:
    async with aclosing(source) as generation:
        try:
            async for reply in generation:
                await stream.send(ring_pb2.Answer(reply=reply.SerializeToString()).SerializeToString())
        except Exception as error:
            await stream.send(ring_pb2.Answer(refusal=_refusal(error)).SerializeToString())
            if as_typed(error) is None:
                raise


def _refusal(error: Exception) -> ring_pb2.Refusal:
    if typed := as_typed(error):
        return ring_pb2.Refusal(code=typed.code, sentence=str(typed))
    return ring_pb2.Refusal(code=KafilaError.code, sentence=f"a bug at the head ended this answer: {error!r}")


async def _until_given_up(stream: Stream) -> None:
    """The asker sends nothing more; what ends this wait is its reset, or the link's end."""
    with contextlib.suppress(KafilaError):
        while await stream.receive() is not None:
            pass
        await asyncio.Event().wait()
