"""What another member asks of the head, and what a head answers, in any bytes: typed, or as the engine may take it."""

from typing import cast

import pytest

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import KafilaError
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.runtime.text.options import resolve
from kafila_sidecar.runtime.text.prompt import ChatPrompt, PlainPrompt, parse_prompt
from kafila_sidecar.runtime.text.stop import StopStrings
from kafila_sidecar.serving import remote
from kafila_sidecar.serving.intake.limits import check_replay, given_options, limits_of, refuse_unsupported
from kafila_sidecar.serving.intake.question import Question, Told
from tests.support.fuzz import INPUTS, fuzz

pytestmark = pytest.mark.fuzz

CONTEXT_TOKENS = 8192
VOCABULARY_SIZE = 300
NOTHING = ring_pb2.Replay()
REPLAY = ring_pb2.Replay(beginning=ring_pb2.Beginning(prompt=[5, 280], seed=7), answer=[8], prompt_s=0.5, times=1)
CHAT = '\x02kafila1 {"messages": [{"role": "user", "content": "once"}], "tools": [{}], "think": "low"}\x03'
OPTIONS = pb.Options(
    num_ctx=4096,
    num_predict=-1,
    num_keep=4,
    temperature=0.7,
    top_k=40,
    top_p=0.9,
    min_p=0.05,
    seed=-3,
    stop=["\n", "x"],
)
REQUESTS = [
    pb.GenerateRequest(session="s", prompt="once", options=OPTIONS, truncate=True),
    pb.GenerateRequest(session="s", prompt=CHAT),
    pb.GenerateRequest(prompt="once", format="json", logprobs=True, top_logprobs=3, images=1),
]


class Said:
    """In place of a stream on which one message came."""

    peer = "anna"

    def __init__(self, message: bytes | None) -> None:
        self._messages = [message]

    async def receive(self, deadline_s: float | None = None, *, most_bytes: int = 0) -> bytes | None:
        return self._messages.pop() if self._messages else None


def read_request(message: bytes | None) -> tuple[Question, int]:
    """What the head makes of a message."""
    steps = remote.read_request(cast(Stream, Said(message)))
    try:
        steps.send(None)
    except StopIteration as end:
        return cast(tuple[Question, int], end.value)
    raise AssertionError("it waits")


def prepare(request: pb.GenerateRequest, replay: ring_pb2.Replay = NOTHING) -> None:
    """As `Intake.prepare` does, up to where a model is needed."""
    refuse_unsupported(request)
    limits = limits_of(request.options, CONTEXT_TOKENS)
    assert 1 <= limits.context_tokens <= CONTEXT_TOKENS
    assert limits.output_tokens is None or limits.output_tokens >= 1
    if replay.beginning.prompt:
        check_replay(replay, limits, VOCABULARY_SIZE)
    resolve(given_options(request.options), {})
    assert isinstance(parse_prompt(request.prompt), ChatPrompt | PlainPrompt)
    stops = StopStrings(request.options.stop)
    assert len(stops.feed("once upon") + stops.finish()) <= len("once upon")


def test_requests_when_the_envelope_is_hostile_then_typed_or_prepared() -> None:
    def read(data: bytes) -> None:
        question = read_request(data)[0]
        prepare(question.request, question.replay)

    samples = [
        ring_pb2.Request(epoch=4, generate=one.SerializeToString(), id=bytes(16), replay=REPLAY).SerializeToString()
        for one in REQUESTS
    ]
    assert 2 <= fuzz(read, samples) < INPUTS


def test_requests_when_the_request_inside_is_hostile_then_typed_or_prepared() -> None:
    def read(data: bytes) -> None:
        question, epoch = read_request(ring_pb2.Request(epoch=4, generate=data, id=bytes(16)).SerializeToString())
        assert epoch == 4
        prepare(question.request)

    assert 2 <= fuzz(read, [one.SerializeToString() for one in REQUESTS]) < INPUTS


def test_prompts_when_the_envelope_is_hostile_then_typed_or_messages() -> None:
    def read(data: bytes) -> None:
        prepare(pb.GenerateRequest(prompt=data.decode("utf-8", "replace")))

    assert fuzz(read, [CHAT.encode(), b"\x02kafila1 {}\x03", b"plain"]) >= 2


def test_answers_when_hostile_then_typed_or_a_reply() -> None:
    def read(data: bytes) -> None:
        assert isinstance(remote.read_reply(data, "anna"), Told)

    reply = pb.GenerateReply(text="once", done=True, prompt_tokens=3, prompt_s=0.1, output_tokens=4, output_s=0.2)
    refusal = ring_pb2.Refusal(code="NOT_FOUND", sentence="no")
    begun = ring_pb2.Answer(reply=reply.SerializeToString(), tokens=[1, 300], beginning=REPLAY.beginning)
    samples = [begun, ring_pb2.Answer(refusal=refusal), ring_pb2.Answer(interrupted="the ring broke")]
    assert 1 <= fuzz(read, [one.SerializeToString() for one in samples], errors=(KafilaError,)) < INPUTS
