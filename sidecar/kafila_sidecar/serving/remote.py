"""A request that was typed on another member than the head: one stream there and back; a reset cancels it.

What is told of the answer comes with its token ids, so that the asker can go on with it at any head. They travel as the
text does, between the two only.
"""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from google.protobuf.message import DecodeError

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput, KafilaError, Unavailable, from_code
from kafila_sidecar.foreign import line
from kafila_sidecar.lack import as_typed
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.serving.intake.limits import MOST_REQUEST_BYTES
from kafila_sidecar.serving.intake.question import ID_BYTES, Question, Replies, Told
from kafila_sidecar.serving.ring import Interrupted

REQUEST_DEADLINE_S = 30.0  # from the stream's opening to the request
FRAMING_BYTES = 1 << 10  # what a request has around it
LONGEST_DOING = 20  # characters
SILENCE_DEADLINE_S = 1260.0  # the longest wait for a free sequence and the longest prompt, together

Asked = Callable[[Question, int], AbstractAsyncContextManager[Replies]]  # the int: the asker's epoch


async def ask(link: Link, question: Question, epoch: int) -> Stream:
    """Sends a request to the head, with what was told of its answer before.

    Raises:
        Unavailable: the link broke.
    """
    generate = question.request.SerializeToString()
    request = ring_pb2.Request(epoch=epoch, generate=generate, id=question.id, replay=question.replay)
    stream = await link.open(StreamKind.REQUEST)
    try:
        await stream.send(request.SerializeToString())
    except BaseException:
        stream.reset()
        raise
    return stream


class RemoteReplies:
    """The head's answer on the stream on which it was asked."""

    def __init__(self, stream: Stream, *, silence_deadline_s: float = SILENCE_DEADLINE_S) -> None:
        self._stream = stream
        self._silence_deadline_s = silence_deadline_s

    async def next(self) -> Told:
        """The next reply.

        Raises:
            Interrupted: the head can't go on now.
            LinkLost, PeerReset: the stream broke.
            KafilaError: what the head refused with.
        """
        message = await self._stream.receive(self._silence_deadline_s)
        if message is None:
            raise Interrupted(f"{self._stream.peer} ended the answer too early")
        return read_reply(message, self._stream.peer)


async def answer(
    stream: Stream,
    asked: Asked,
    *,
    receiving: AbstractAsyncContextManager[Any] | None = None,
    request_deadline_s: float = REQUEST_DEADLINE_S,
) -> None:
    """Serves one request on the head. The asker's reset ends the generation. `receiving`: entered while the request
    comes in.

    Raises:
        KafilaError: the stream broke.
    """
    async with receiving or nullcontext():
        question, epoch = await read_request(stream, request_deadline_s)
    answering = asyncio.ensure_future(_send_answer(stream, asked(question, epoch)))
    gone = asyncio.ensure_future(_until_given_up(stream))
    try:
        await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            await answering
    finally:
        for task in (answering, gone):
            task.cancel()
        await asyncio.wait((answering, gone))


def read_reply(message: bytes, peer: str) -> Told:
    """One message of an answer. Raises KafilaError: what the head refused with, why it can't go on, or it can't be
    read."""
    try:
        answer = ring_pb2.Answer.FromString(message)
        reply = pb.GenerateReply.FromString(answer.reply)
    except DecodeError as error:
        raise Unavailable(f"an answer of {peer} can't be read") from error
    if answer.HasField("refusal"):
        raise from_code(answer.refusal.code, answer.refusal.sentence)
    if answer.HasField("interrupted"):
        raise Interrupted(line(answer.interrupted))
    if reply.HasField("headway"):
        _check_headway(reply, peer)
    beginning = answer.beginning if answer.HasField("beginning") else None
    return Told(reply, answer.tokens, answer.scores, beginning)


def _check_headway(reply: pb.GenerateReply, peer: str) -> None:
    """Raises Unavailable for what can't be true, or does not stand by itself: clients draw it."""
    said = reply.headway
    is_alone = not (reply.text or reply.done)
    if not is_alone or said.tokens > said.of or len(said.doing) > LONGEST_DOING:
        raise Unavailable(f"{said.tokens} of {said.of} tokens that {peer} says are read make no sense")


async def read_request(stream: Stream, deadline_s: float = REQUEST_DEADLINE_S) -> tuple[Question, int]:
    """What is asked for, and in which epoch.

    Raises:
        InvalidInput: it can't be read.
        KafilaError: it did not come in time, or the stream broke.
    """
    message = await stream.receive(deadline_s, most_bytes=MOST_REQUEST_BYTES + FRAMING_BYTES)
    try:
        request = ring_pb2.Request.FromString(message or b"")
        generate = pb.GenerateRequest.FromString(request.generate)
    except DecodeError as error:
        raise InvalidInput(f"a request of {stream.peer} can't be read") from error
    if len(request.id) != ID_BYTES:
        raise InvalidInput(f"a request of {stream.peer} has an id of {len(request.id)} bytes, {ID_BYTES} are wanted")
    return Question(generate, request.replay, request.id, stream.peer), request.epoch


async def _send_answer(stream: Stream, asked: AbstractAsyncContextManager[Replies]) -> None:
    try:
        async with asked as replies:
            is_done = False
            while not is_done:
                told = await replies.next()
                is_done = told.reply.done
                await stream.send(_answer(told).SerializeToString())
    except Interrupted as error:
        await stream.send(ring_pb2.Answer(interrupted=str(error)).SerializeToString())
    except Exception as error:
        await stream.send(ring_pb2.Answer(refusal=_refusal(error)).SerializeToString())
        if as_typed(error) is None:
            raise


def _answer(told: Told) -> ring_pb2.Answer:
    reply = told.reply.SerializeToString()
    return ring_pb2.Answer(reply=reply, tokens=told.tokens, scores=told.scores, beginning=told.beginning)


def _refusal(error: Exception) -> ring_pb2.Refusal:
    if typed := as_typed(error):
        return ring_pb2.Refusal(code=typed.code, sentence=str(typed))
    return ring_pb2.Refusal(code=KafilaError.code, sentence=f"a bug at the head ended this answer: {error!r}")


async def _until_given_up(stream: Stream) -> None:
    """The asker sends nothing more; what ends this wait is its reset, or the link's end."""
    with contextlib.suppress(KafilaError):
        while await stream.receive(most_bytes=0) is not None:
            pass
        await asyncio.Event().wait()
