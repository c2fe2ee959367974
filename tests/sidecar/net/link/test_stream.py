"""The inbox of a stream: bytes in any pieces, messages out."""

import itertools
import random
import struct

import pytest

from kafila_sidecar.net.errors import BadFrame
from kafila_sidecar.net.link.stream import MAX_MESSAGE_BYTES, Inbox
from kafila_sidecar.net.quic.credit import STREAM_WINDOW_BYTES
from tests.support import fuzz

MESSAGES = [b"", b"a", b"bc" * 500, b"", b"d" * 70_000]


def framed(messages: list[bytes]) -> bytes:
    return b"".join(struct.pack("!I", len(message)) + message for message in messages)


def test_messages_when_bytes_come_in_any_pieces_then_they_come_out_whole_and_in_order() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        data, at = framed(MESSAGES), 0
        inbox, got = Inbox(), []
        while at < len(data):
            step = chance.choice([1, 2, 3, 1100, 50_000])
            inbox.feed(data[at : at + step], is_last=at + step >= len(data))
            at += step
            while (message := inbox.take()) is not None:
                got.append(message)
        assert got == MESSAGES
        assert inbox.consumed == len(data)
        assert inbox.take() is None


def test_bytes_when_nobody_takes_then_none_count_as_consumed() -> None:
    inbox = Inbox()
    inbox.feed(framed([b"x" * 1000]), is_last=False)
    assert inbox.consumed == 0


def test_message_when_larger_than_the_window_then_taking_consumes_what_is_there() -> None:
    inbox = Inbox()
    message = bytes(2 * STREAM_WINDOW_BYTES)
    data = framed([message])
    inbox.feed(data[:STREAM_WINDOW_BYTES], is_last=False)
    assert inbox.take() is None
    assert inbox.consumed == STREAM_WINDOW_BYTES
    inbox.feed(data[STREAM_WINDOW_BYTES:], is_last=False)
    assert inbox.take() == message


def test_kind_when_it_shares_a_piece_with_a_message_then_both_come_out() -> None:
    inbox = Inbox()
    assert inbox.take_kind() is None
    inbox.feed(b"\x05" + framed([b"hello"]), is_last=True)
    assert inbox.take_kind() == 5
    assert inbox.take() == b"hello"


def test_message_when_over_the_limit_then_bad_frame_before_its_bytes_come() -> None:
    inbox = Inbox()
    inbox.feed(struct.pack("!I", MAX_MESSAGE_BYTES + 1), is_last=False)
    with pytest.raises(BadFrame, match="over the limit"):
        inbox.take()


@pytest.mark.parametrize("cut", [1, 3, 4, 5])
def test_stream_when_finished_inside_a_message_then_bad_frame(cut: int) -> None:
    inbox = Inbox()
    inbox.feed(framed([b"hello"])[:cut], is_last=True)
    with pytest.raises(BadFrame, match="inside a message"):
        inbox.take()


def read_stream(data: bytes, chance: random.Random) -> None:
    """A stream that comes in pieces, with its kind byte, and perhaps its end. Raises BadFrame."""
    inbox, taken_bytes = Inbox(), 0
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(3))
    for start, end in itertools.pairwise((0, *cuts, len(data))):
        inbox.feed(data[start:end], is_last=end == len(data) and chance.random() < 0.5)
    if inbox.take_kind() is not None:
        while (message := inbox.take()) is not None:
            taken_bytes += 4 + len(message)
    assert taken_bytes <= inbox.consumed <= len(data)
    assert inbox._arrived_bytes + inbox._parts_bytes <= len(data)


@pytest.mark.fuzz
def test_inbox_when_the_stream_is_hostile_then_whole_messages_or_a_bad_frame() -> None:
    chance = random.Random(fuzz.SEED)
    samples = [b"\x01" + framed(messages) for messages in ([], [b""], [b"a", b"bc" * 300, b""], [b"x" * 5000])]
    samples.append(b"\x01" + (MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"))
    assert fuzz.fuzz(lambda data: read_stream(data, chance), samples, errors=(BadFrame,)) > fuzz.INPUTS // 4


@pytest.mark.fuzz
def test_inbox_when_one_stream_goes_on_and_on_then_it_holds_no_more_than_is_unread() -> None:
    inbox, chance = Inbox(), random.Random(fuzz.SEED)

    def read(data: bytes) -> None:
        inbox.feed(framed([data]), is_last=False)
        if chance.random() < 0.5:
            while inbox.take() is not None:
                pass
            assert (inbox._arrived_bytes, inbox._parts_bytes, len(inbox._arrived)) == (0, 0, 0)

    assert fuzz.fuzz(read, [b"", b"message"], errors=()) == fuzz.INPUTS + 2
