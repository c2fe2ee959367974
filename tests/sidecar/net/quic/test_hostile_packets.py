"""The short way for packets, beside aioquic's own, when a member says anything: same answers, same end."""

import random
from collections.abc import Callable

import pytest
from aioquic import tls
from aioquic.quic.packet import QuicErrorCode

from kafila_sidecar.net.quic.connection import PinnedConnection
from tests.sidecar.net.link.test_hostile_member import FRAMES, HostileMember, frame, pump
from tests.sidecar.net.quic.long_way import LongWay
from tests.sidecar.net.quic.played import Played, is_open, played

TOLD = [
    *FRAMES.values(),
    frame(0x0A, 0, 3, b"abc"),
    frame(0x0C, 0, 3, b"to the end"),
    frame(0x0E, 0, 3, 2, b"de"),
    frame(0x0E, 0, 5 << 20, 2, b"over the limit of the stream"),
    frame(0x02, 1000, 0, 0, 1),
]


def harmless(stream_id: int) -> list[bytes]:
    """What an honest member says all day: most of the other frames end the link at once."""
    return [
        *(frame(0x0E, stream_id, at, 2, b"xy") for at in range(6)),
        frame(0x0A, stream_id, 0),
        frame(0x0C, stream_id, 3, b"to the end"),
        *(frame(0x02, number, 0, 0, 0) for number in range(2, 6)),
        *(frame(0x02, number, 0, 0, 0) + frame(0x0E, stream_id, number, 1, b"x") for number in range(2, 6)),
    ]


def hostile_life(seed: int, ends: type[PinnedConnection]) -> Played:
    """A member says anything, and the honest end answers it, and says something of its own."""
    chance = random.Random(seed)
    with played(seed, ends) as told:
        hostile = HostileMember(dials=chance.random() < 0.5)
        honest, stream_id, own = hostile.honest, *((8, 1) if hostile.end.core.dials else (9, 0))
        for _ in range(30):
            payload = bytearray(chance.choice(harmless(stream_id)))
            if chance.random() < 0.2:
                payload += b"".join(chance.choices(TOLD, k=chance.choice([1, 1, 2])))
            if chance.random() < 0.1:
                payload[chance.randrange(len(payload))] = chance.randrange(256)
            hostile.say(bytes(payload))
            if chance.random() < 0.2 and is_open(honest.core.connection, own):
                honest.write(own, bytes(chance.choice([3, 3000])))
            if chance.random() < 0.2:
                honest.wire.now += 0.03
                honest.core.handle_timer(honest.wire.now)
                pump(honest)
            told.note(honest)
        told.events = [honest.events]
        told.endings = [honest.core.connection.ending]
    return told


def test_packets_when_a_member_says_anything_then_what_is_said_and_heard_is_as_aioquic_has_it() -> None:
    endings, built, read = set(), 0, 0
    for seed in range(80):
        short, long = hostile_life(seed, PinnedConnection), hostile_life(seed, LongWay)
        assert short == long
        built, read = built + short.short, read + short.read
        endings |= {ending and ending.error_code for ending in short.endings}
    assert len(endings) > 4
    assert built > 80
    assert read > 80


Step = bytes | Callable[[HostileMember], None]  # a payload that is said, or something that happens meanwhile


def consumed(total_bytes: int, *stream_ids: int) -> Step:
    """The honest end has readers of these streams, which have come so far."""

    def step(hostile: HostileMember) -> None:
        for stream_id in stream_ids:
            hostile.honest.core.credit.consume(stream_id, total_bytes)

    return step


def answered(stream_id: int, size_bytes: int) -> Step:
    """The honest end says something."""
    return lambda hostile: hostile.honest.write(stream_id, bytes(size_bytes))


def granted(size_bytes: int) -> Step:
    """So much more may the honest end send on all streams together."""

    def step(hostile: HostileMember) -> None:
        connection = hostile.honest.core.connection
        connection._remote_max_data = connection._remote_max_data_used + size_bytes

    return step


def granted_on(stream_id: int, size_bytes: int) -> Step:
    """So much may it send on this one from its start."""

    def step(hostile: HostileMember) -> None:
        hostile.honest.core.connection._streams[stream_id].max_stream_data_remote = size_bytes

    return step


def slow_down(hostile: HostileMember) -> None:
    """From now on the honest end may send a packet only now and then, as on a path of half a minute."""
    loss = hostile.honest.core.connection._loss
    loss._pacer.update_rate(loss.congestion_window, 30.0)


def acknowledge_all(hostile: HostileMember) -> None:
    latest = hostile.honest.core.connection._packet_number - 1
    hostile.say(frame(0x02, latest, 0, 0, 0))


def at_once(*payloads: bytes) -> Step:
    """Packets that come before any of them is answered."""
    return lambda hostile: hostile.say_at_once(list(payloads))


FOUR_BYTE_NUMBER = 0x43  # in the first byte of a packet


def say_nothing(hostile: HostileMember) -> None:
    """A packet without a frame, which only a long number leaves room for."""
    hostile.say(b"", first=FOUR_BYTE_NUMBER)


MIB = 1 << 20
WINDOW = 4 * MIB  # of a stream; that of a link is four of them
NEW_ID = frame(0x18, 8, 2, b"\x08", b"another1", bytes(16))  # and two that are in use are to be retired
PLAIN: list[Step] = [frame(0x0A, 0, 3, b"abc"), *(frame(0x0E, 0, 3 + i, 1, b"x") for i in range(3))]
FILLED = (4, 8, 12, 16, 20)
IN_TURN: dict[str, list[Step]] = {
    "data, and padding after it": [frame(0x0E, 0, 6 + i, 1, b"x") + bytes(4) for i in range(9)],
    "data behind the end": [frame(0x0F, 4, 70_100, 7, b"the end"), frame(0x0E, 4, 80_000, 9, b"beyond it")],
    "data before the end": [frame(0x0F, 4, 70_100, 7, b"the end"), frame(0x0E, 4, 60_000, 13, b"far before it")],
    "data after the whole": [frame(0x0B, 4, 7, b"the end"), frame(0x0E, 4, 3, 2, b"en"), frame(0x0E, 4, 9, 1, b"x")],
    "more than the window of a stream": [frame(0x0E, 0, WINDOW - 1, 1, b"x"), frame(0x0E, 0, WINDOW, 1, b"x")],
    "more than the window of the link": [
        consumed(0, *FILLED),
        *(frame(0x0E, stream_id, 0, 1, b"x") for stream_id in FILLED),
        *(frame(0x0E, stream_id, WINDOW - 1, 1, b"x") for stream_id in FILLED),
    ],
    "a limit of a stream, and none of the link, to be told": [
        *(frame(0x0E, stream_id, MIB - 1, 1, b"x") for stream_id in (4, 8)),
        consumed(MIB, 4, 8),
        frame(0x0E, 4, 2 * MIB - 1, 1, b"x"),
        consumed(2 * MIB, 4),
        frame(0x0E, 0, 6, 1, b"x"),
    ],
    "no data on a stream that only the other sends on": [answered(7, 3), frame(0x0A, 7, 0)],
    "no frame": [say_nothing],
    "a frame that is cut off": [frame(0x0E, 0, 6, 9, b"x")],
    "a challenge": [frame(0x1A, b"12345678"), *(frame(0x0E, 0, 6 + i, 1, b"x") for i in range(3))],
    "data behind what ends the link": [at_once(frame(0x1E), frame(0x0E, 0, 6, 1, b"x"))],
    "data behind a close": [at_once(FRAMES["close"], frame(0x0E, 0, 6, 1, b"x"))],
    "other connection ids": [NEW_ID, frame(0x19, 1), frame(0x01)],
    "less credit than there is to say": [
        granted(5000),
        answered(1, 3000),
        acknowledge_all,
        answered(5, 3000),
        acknowledge_all,
        answered(1, 1),
        frame(0x10, 1 << 40),
        acknowledge_all,
    ],
    "less credit on a stream than there is to say": [
        answered(1, 3),
        granted_on(1, 2000),
        answered(1, 3000),
        acknowledge_all,
        answered(1, 1),
        frame(0x11, 1, 1 << 40),
        acknowledge_all,
    ],
    "data while what is to be said waits": [
        slow_down,
        answered(1, 5000),
        *(frame(0x0E, 0, 6 + i, 1, b"x") for i in range(4)),
    ],
    "more streams than may be opened": [
        answered(801, 50),
        *(frame(0x0E, 0, 6 + i, 1, b"x") for i in range(3)),
        frame(0x12, 500),
        frame(0x0E, 0, 9, 1, b"x"),
    ],
}


def life_in_turn(steps: list[Step], ends: type[PinnedConnection]) -> Played:
    with played(1, ends) as told:
        hostile = HostileMember(dials=True)
        for step in PLAIN + steps:
            hostile.honest.wire.now += 0.03
            if isinstance(step, bytes):
                hostile.say(step)
            else:
                step(hostile)
            told.note(hostile.honest)
        told.events = [hostile.honest.events]
        told.endings = [hostile.honest.core.connection.ending]
    return told


@pytest.mark.parametrize("name", IN_TURN)
def test_packets_when_they_belong_together_then_what_is_said_and_heard_is_as_aioquic_has_it(name: str) -> None:
    short, long = life_in_turn(IN_TURN[name], PinnedConnection), life_in_turn(IN_TURN[name], LongWay)
    assert short == long
    assert short.short > 0
    assert short.read > 0


KEY_PHASE = 0x04  # as above


def headers_life(ends: type[PinnedConnection], *, last: int) -> Played:
    """Packets come twice, with gaps, with a first byte of no packet; the last one's is `last`, which has bits that must
    be zero."""
    with played(1, ends) as told:
        hostile = HostileMember(dials=True)
        latest = hostile.end.core.connection._packet_number
        hostile.say_in(latest, frame(0x0A, 0, 1, b"x"))
        for first, step in ((0x41, 1), (0x61, 1), (0x01, 1), (0xC1, 1), (0x41, 2), (0x61, 2), (0x41, 1)):
            for at in range(70):
                latest += step
                for number in (latest, latest, latest - 1 if at % 10 == 0 else latest):
                    hostile.say_in(number, frame(0x0E, 0, at, 1, b"x") if at % 5 else FRAMES["ping"], first=first)
                    told.note(hostile.honest)
        if last & KEY_PHASE:
            hostile.end.core.connection._cryptos[tls.Epoch.ONE_RTT]._update_key("local_update")
        hostile.say_in(latest + 1, FRAMES["ping"], first=last)
        told.note(hostile.honest)
        told.endings = [hostile.honest.core.connection.ending]
    return told


@pytest.mark.parametrize("last", [0x51, 0x49, 0x51 | KEY_PHASE])
def test_packets_when_they_are_odd_themselves_then_what_is_said_and_heard_is_as_aioquic_has_it(last: int) -> None:
    short, long = headers_life(PinnedConnection, last=last), headers_life(LongWay, last=last)
    assert short == long
    assert short.short > 0
    assert short.read > 100
    (ending,) = short.endings
    assert ending is not None
    assert ending.error_code == QuicErrorCode.PROTOCOL_VIOLATION
