"""proto/RING.md's hex examples are what the code sends and takes."""

import pytest

from kafila_sidecar.net import stun
from kafila_sidecar.net.candidates import LARGEST_LOCAL, PEER_REFLEXIVE, priority
from kafila_sidecar.net.link.stream import Inbox, StreamKind
from kafila_sidecar.net.quic.neighbour import WELCOME
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.serving.frames import wire
from kafila_sidecar.serving.frames.hop import limits_frame
from kafila_sidecar.serving.frames.wire import Frame, FrameKind, Timing
from tests.support.docs import Document

example = Document("proto/RING.md").hex
SECRET = stun.pair_secret(bytes(range(16)), b"k" * 32, b"\x02" * 32, b"\x01" * 32)

ACTIVATION = Frame(
    kind=FrameKind.ACTIVATION,
    epoch=3,
    sequence=258,
    position=7,
    tokens=2,
    dtype="bfloat16",
    shape=(1, 2, 3),
    payload=memoryview(bytes.fromhex("803f0040404080bf00c04000")),
    needs_output=False,
    timings=(Timing(compute_s=0.25, residence_s=0.5, rows=2),),
)
REST = Frame(kind=FrameKind.REST, epoch=3, sequence=258)
RELEASE = Frame(kind=FrameKind.RELEASE, epoch=3, sequence=258)
STEPS = limits_frame(StepLimits(exact=4, bounded=8, rows=4), epoch=3)


def test_check_when_built_with_the_documents_values_then_it_is_the_documents_bytes() -> None:
    learnt = priority(PEER_REFLEXIVE, LARGEST_LOCAL)
    assert stun.request(SECRET, stun.DIALLER, learnt, bytes(range(1, 13)), 1) == example("check")


def test_answer_when_built_for_that_check_then_it_is_the_documents_bytes() -> None:
    asked = stun.parse(example("check"))
    assert asked.check_message_integrity(SECRET.key)
    assert stun.answer(SECRET, asked, ("192.0.2.1", 32853)) == example("answer")


def test_welcome_when_compared_then_it_is_the_documents_bytes() -> None:
    assert example("welcome") == WELCOME


def test_message_when_read_then_kind_and_message_come_out() -> None:
    inbox = Inbox()
    inbox.feed(example("message"), is_last=False)
    assert inbox.take_kind() == StreamKind.REQUEST
    assert inbox.take() == b"\x08\x03"


@pytest.mark.parametrize(
    ("name", "frame"), [("activation", ACTIVATION), ("rest", REST), ("release", RELEASE), ("steps", STEPS)]
)
def test_frame_when_encoded_and_decoded_then_it_is_the_documents(name: str, frame: Frame) -> None:
    assert b"".join(wire.encode(frame)) == example(name)
    assert wire.decode(example(name)) == frame
