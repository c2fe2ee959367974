"""A request typed elsewhere than at the head: there and back over one stream, in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from itertools import count
from typing import cast

import pytest

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import Exhausted, InvalidInput, KafilaError, TimedOut, Unavailable
from kafila_sidecar.net.errors import LinkLost, PeerReset
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.serving import remote
from kafila_sidecar.serving.intake.question import Question, Told
from kafila_sidecar.serving.ring import Interrupted
from tests.sidecar.serving.rings import settle
from tests.sidecar.serving.streams import StreamWire

REQUEST = pb.GenerateRequest(prompt="once")
BEFORE = ring_pb2.Replay(beginning=ring_pb2.Beginning(prompt=[5, 6], seed=7), answer=[8], times=1)


class Head:
    """Generates `count` texts and then ends as told; notes what was asked, and that every generation was closed."""

    def __init__(self) -> None:
        self.count = 3
        self.request_deadline_s = 30.0
        self.ends_with: Exception | None = None
        self.asked: list[tuple[Question, int]] = []
        self.closed = 0
        self.said = count()
        self.errors: list[BaseException] = []

    async def serve(self, stream: Stream) -> None:
        try:
            await remote.answer(stream, self.generate, request_deadline_s=self.request_deadline_s)
        except Exception as error:
            self.errors.append(error)
            raise

    @asynccontextmanager
    async def generate(self, question: Question, epoch: int) -> AsyncIterator["Head"]:
        self.asked.append((question, epoch))
        self.said = count()
        try:
            yield self
        finally:
            self.closed += 1

    async def next(self) -> Told:
        await asyncio.sleep(0)
        number = next(self.said)
        if number < self.count:
            return Told(pb.GenerateReply(text=str(number)), (number, 256 + number))
        if self.ends_with is not None:
            raise self.ends_with
        return Told(pb.GenerateReply(done=True))


@pytest.fixture
def head() -> Head:
    return Head()


@pytest.fixture
async def wire(head: Head) -> AsyncIterator[StreamWire]:
    made = StreamWire("asker", "head", head.serve)
    yield made
    await made.end()


async def ask(wire: StreamWire, epoch: int = 4) -> Stream:
    return await remote.ask(cast(Link, wire), Question(REQUEST, BEFORE), epoch)


async def read(stream: Stream) -> list[str]:
    return await read_on(remote.RemoteReplies(stream))


async def read_on(replies: remote.RemoteReplies) -> list[str]:
    texts, is_done = list[str](), False
    while not is_done:
        told = await replies.next()
        texts.append(told.reply.text)
        assert list(told.tokens) == ([] if told.reply.done else [int(told.reply.text), 256 + int(told.reply.text)])
        is_done = told.reply.done
    return texts


@pytest.mark.parametrize(
    ("tokens", "of", "doing", "text", "makes_sense"),
    [
        (0, 3, "reading", "", True),
        (3, 3, "reading", "", True),
        (0, 0, "waiting", "", True),
        (4, 3, "reading", "", False),
        (2**32 - 1, 0, "reading", "", False),
        (1, 3, "reading", "once", False),  # the text would be lost
        (1, 3, "reading" * 1000, "", False),
    ],
)
def test_headway_when_the_head_lies_then_it_is_not_passed_on(
    tokens: int, of: int, doing: str, text: str, makes_sense: bool
) -> None:
    said = pb.GenerateReply(text=text, headway=pb.Headway(doing=doing, tokens=tokens, of=of))
    with nullcontext() if makes_sense else pytest.raises(Unavailable, match="make no sense"):
        message = ring_pb2.Answer(reply=said.SerializeToString()).SerializeToString()
        assert remote.read_reply(message, "head").reply == said


async def test_request_when_answered_then_every_reply_in_order_and_the_generation_closed(
    head: Head, wire: StreamWire
) -> None:
    assert await read(await ask(wire)) == ["0", "1", "2", ""]
    await settle()
    ((question, epoch),) = head.asked
    assert (question.request, question.replay, question.asker, epoch) == (REQUEST, BEFORE, "asker", 4)
    assert head.closed == 1


@pytest.mark.parametrize("error", [Exhausted("512 requests wait"), InvalidInput("num_ctx is -1"), TimedOut("late")])
async def test_request_when_refused_then_the_same_error_arrives(
    head: Head, wire: StreamWire, error: KafilaError
) -> None:
    head.ends_with = error
    with pytest.raises(type(error), match=str(error)):
        await read(await ask(wire))
    await settle()
    assert head.closed == 1
    assert head.errors == []


async def test_request_when_the_head_can_not_go_on_then_the_asker_hears_that_it_may_ask_again(
    head: Head, wire: StreamWire
) -> None:
    head.ends_with = Interrupted("the ring broke")
    with pytest.raises(Interrupted, match="the ring broke"):
        await read(await ask(wire))
    await settle()
    assert (head.closed, head.errors) == (1, [])


async def test_request_when_the_head_has_a_bug_then_it_arrives_as_internal_and_is_raised_there(
    head: Head, wire: StreamWire
) -> None:
    head.ends_with = ZeroDivisionError("oops")
    with pytest.raises(KafilaError, match="bug") as refused:
        await read(await ask(wire))
    assert refused.value.code == "INTERNAL"
    await settle()
    assert [type(error) for error in head.errors] == [ZeroDivisionError]


@pytest.mark.parametrize("replies", [0, 1, 3])
async def test_request_when_the_asker_resets_then_the_generation_is_closed(
    head: Head, wire: StreamWire, replies: int
) -> None:
    head.count = 10**9
    stream = await ask(wire)
    source = remote.RemoteReplies(stream)
    for _ in range(replies):
        await source.next()
    stream.reset()
    await settle()
    assert (head.closed, len(head.asked)) in ((1, 1), (0, 0))
    assert all(task.done() for task in wire.served)


async def test_request_when_the_link_is_lost_then_both_ends_hear(head: Head, wire: StreamWire) -> None:
    head.count = 10**9
    source = remote.RemoteReplies(await ask(wire))
    await source.next()
    wire.cut()
    with pytest.raises(LinkLost):
        await read_on(source)
    await settle()
    assert head.closed == 1


async def test_ask_when_the_link_is_down_then_unavailable(wire: StreamWire) -> None:
    wire.down = True
    with pytest.raises(Unavailable):
        await ask(wire)


async def test_ask_when_cancelled_while_sending_then_the_stream_is_given_up() -> None:
    opened = asyncio.Event()

    async def never_reads(stream: Stream) -> None:
        opened.set()
        with pytest.raises(PeerReset):
            await stream.receive(5)

    class Stalled(StreamWire):
        async def open(self, kind: int = 1) -> Stream:
            stream = await super().open(kind)
            self.ends[-1][0].stalled = True
            return stream

    wire = Stalled("asker", "head", never_reads)
    asking = asyncio.create_task(ask(wire))
    await opened.wait()
    asking.cancel()
    await asyncio.wait([asking])
    async with asyncio.timeout(1):
        await asyncio.gather(*wire.served)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"\xff\xff", Unavailable),
        (ring_pb2.Answer(reply=b"\xff").SerializeToString(), Unavailable),
        (ring_pb2.Answer(refusal=ring_pb2.Refusal(code="NO_SUCH", sentence="x")).SerializeToString(), KafilaError),
        (None, Unavailable),
    ],
)
async def test_replies_when_the_head_sends_nonsense_or_ends_early_then_a_typed_error(
    message: bytes | None, error: type[KafilaError]
) -> None:
    async def serve(stream: Stream) -> None:
        await stream.receive()
        if message is not None:
            await stream.send(message)

    wire = StreamWire("asker", "head", serve)
    with pytest.raises(error):
        await read(await ask(wire))
    await wire.end()


@pytest.mark.parametrize(
    "message",
    [
        b"\xff\xff",
        ring_pb2.Request(generate=b"\xff", id=bytes(16)).SerializeToString(),
        ring_pb2.Request(generate=b"", id=bytes(15)).SerializeToString(),
    ],
)
async def test_answer_when_the_request_can_not_be_read_then_refused(
    head: Head, wire: StreamWire, message: bytes
) -> None:
    stream = await wire.open()
    await stream.send(message)
    with pytest.raises(PeerReset):
        await stream.receive(2)
    assert [type(error) for error in head.errors] == [InvalidInput]


async def test_answer_when_no_request_comes_then_it_waits_no_longer(head: Head, wire: StreamWire) -> None:
    head.request_deadline_s = 0.02
    stream = await wire.open()
    with pytest.raises(PeerReset):
        await stream.receive(2)
    assert [error.code for error in head.errors if isinstance(error, KafilaError)] == ["DEADLINE_EXCEEDED"]


async def test_replies_when_the_head_says_nothing_then_it_times_out() -> None:
    async def silent(stream: Stream) -> None:
        await asyncio.Event().wait()

    wire = StreamWire("asker", "head", silent)
    with pytest.raises(TimedOut):
        await remote.RemoteReplies(await ask(wire), silence_deadline_s=0.02).next()
    await wire.end()
