"""Links over real sockets on loopback."""

import asyncio
import os
import socket
from dataclasses import replace
from typing import cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.net import stun
from kafila_sidecar.net.errors import BadFrame, LinkLost, PeerReset, ReceiveTimedOut, Unpinned
from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.pathsize import PROBED_BYTES
from kafila_sidecar.net.link.stream import MAX_MESSAGE_BYTES, SEND_BUFFER_BYTES, Stream
from kafila_sidecar.net.link.streams import OnStream
from tests.sidecar.net.people import KEY, SESSION, dial, echo, ignore, linked, person, two_people

KIND = 7


async def test_link_when_both_connect_then_messages_travel_both_ways() -> None:
    async with linked(on_listener=echo) as pair:
        stream = await pair.dialler.open(KIND)
        for message in (b"", b"x", os.urandom(8192)):
            await stream.send(message)
            assert await stream.receive(5) == message
        stream.finish()
        assert await stream.receive(5) is None
        assert pair.dialler.path == pair.listener.path == "direct"
        assert 0 < pair.dialler.rtt_s < 1


async def test_stream_when_opened_with_a_kind_then_the_peer_gets_that_kind_and_the_opener_name() -> None:
    seen: asyncio.Queue[tuple[int | None, str]] = asyncio.Queue()

    async def note(stream: Stream) -> None:
        seen.put_nowait((stream.kind, stream.peer))

    async with linked(on_dialler=note, on_listener=note) as pair:
        await pair.dialler.open(3)
        assert await asyncio.wait_for(seen.get(), 5) == (3, "dialler")
        await pair.listener.open(255)
        assert await asyncio.wait_for(seen.get(), 5) == (255, "listener")


async def test_message_when_in_several_parts_then_it_arrives_as_one() -> None:
    async with linked(on_listener=echo) as pair:
        stream = await pair.dialler.open(KIND)
        await stream.send(b"head", memoryview(bytearray(range(8))).cast("I"), b"tail")
        assert await stream.receive(5) == b"head" + bytes(range(8)) + b"tail"


async def test_message_when_eight_megabytes_then_it_arrives_intact() -> None:
    message = os.urandom(8 << 20)
    async with linked(on_listener=echo) as pair:
        stream = await pair.dialler.open(KIND)
        sending = asyncio.create_task(stream.send(message))
        assert await stream.receive(30) == message
        await sending


async def test_link_when_loopback_carries_large_datagrams_then_they_are_used() -> None:
    async with linked(on_listener=echo) as pair:
        await asyncio.sleep(0.1)
        stream = await pair.dialler.open(KIND)
        await stream.send(bytes(8192))
        await stream.receive(5)
        assert pair.dialler._core.connection._max_datagram_size == max(PROBED_BYTES)
        assert pair.listener._core.connection._max_datagram_size == max(PROBED_BYTES)


async def test_message_when_over_the_limit_then_send_refuses_it() -> None:
    async with linked() as pair:
        stream = await pair.dialler.open(KIND)
        huge = memoryview(bytearray(MAX_MESSAGE_BYTES + 1))
        with pytest.raises(BadFrame, match="over the limit"):
            await stream.send(huge)


async def test_ring_when_three_endpoints_are_linked_then_a_message_goes_round() -> None:
    people = [person() for _ in range(3)]
    endpoints = [Endpoint.open(host="127.0.0.1") for _ in range(3)]
    arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
    onward: dict[int, Stream] = {}

    def handler(i: int) -> OnStream:
        async def forward(stream: Stream) -> None:
            message = await stream.receive(5)
            if i == 0:
                arrived.put_nowait(message)
            else:
                await onward[i].send(message or b"")

        return forward

    async def both_ends(i: int) -> None:
        j = (i + 1) % 3
        here, _ = await asyncio.gather(
            dial(endpoints[i], people[i], people[j], endpoints[j], on_stream=handler(i)),
            dial(endpoints[j], people[j], people[i], endpoints[i], on_stream=handler(j)),
        )
        onward[i] = await here.open(KIND)

    await asyncio.gather(*(both_ends(i) for i in range(3)))
    await onward[0].send(b"round")
    assert await asyncio.wait_for(arrived.get(), 5) == b"round"
    for endpoint in endpoints:
        await endpoint.close()


async def test_two_sessions_when_on_the_same_endpoints_then_their_streams_stay_apart() -> None:
    low, high = two_people()
    one, other = Endpoint.open(host="127.0.0.1"), Endpoint.open(host="127.0.0.1")

    def answer(text: bytes) -> OnStream:
        async def handler(stream: Stream) -> None:
            await stream.receive(5)
            await stream.send(text)

        return handler

    async def session(name: bytes) -> bytes | None:
        here, _ = await asyncio.gather(
            dial(one, low, high, other, session=name),
            dial(other, high, low, one, session=name, on_stream=answer(name)),
        )
        stream = await here.open(KIND)
        await stream.send(b"who?")
        return await stream.receive(5)

    first, second = await asyncio.gather(session(b"first"), session(b"second"))
    assert (first, second) == (b"first", b"second")
    await one.close()
    await other.close()


@pytest.mark.parametrize("impostor", ["dialler", "listener"])
async def test_wrong_certificate_when_shown_by_either_end_then_both_ends_refuse(impostor: str) -> None:
    low, high = two_people()
    other_key = person()
    # The impostor knows the session's key and claims the member's fingerprint, but holds another certificate.
    claimed_low = replace(other_key, fingerprint=low.fingerprint) if impostor == "dialler" else low
    claimed_high = replace(other_key, fingerprint=high.fingerprint) if impostor == "listener" else high
    one, other = Endpoint.open(host="127.0.0.1"), Endpoint.open(host="127.0.0.1")
    results = await asyncio.gather(
        dial(one, claimed_low, high, other, deadline_s=0.7),
        dial(other, claimed_high, low, one, deadline_s=0.7),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [Unpinned, Unpinned]
    await one.close()
    await other.close()


async def test_missing_client_certificate_when_dialling_then_the_listener_refuses() -> None:
    low, high = two_people()
    one, other = Endpoint.open(host="127.0.0.1"), Endpoint.open(host="127.0.0.1")
    nobody = replace(low, private_key=cast(Ed25519PrivateKey, None))  # so TLS sends an empty certificate list
    results = await asyncio.gather(
        dial(one, nobody, high, other, deadline_s=0.7),
        dial(other, high, low, one, deadline_s=0.7),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [Unpinned, Unpinned]
    assert "no certificate" in str(results[1])
    await one.close()
    await other.close()


async def test_connect_when_nobody_answers_then_unavailable_names_peer_and_each_candidate() -> None:
    low, high = two_people()
    one, other = Endpoint.open(host="127.0.0.1"), Endpoint.open(host="127.0.0.1")
    with pytest.raises(Unavailable) as caught:
        await dial(one, low, high, other, deadline_s=0.4, name="oak")
    text = str(caught.value)
    assert "oak" in text
    assert f"127.0.0.1 port {other.address[1]} (host)" in text
    assert "no answer" in text
    await one.close()
    await other.close()


async def test_connect_when_the_session_keys_differ_then_no_link_comes_up() -> None:
    low, high = two_people()
    one, other = Endpoint.open(host="127.0.0.1"), Endpoint.open(host="127.0.0.1")
    results = await asyncio.gather(
        dial(one, low, high, other, deadline_s=0.4),
        dial(other, high, low, one, deadline_s=0.4, key=b"another key altogether"),
        return_exceptions=True,
    )
    assert all(isinstance(result, Unavailable) for result in results)
    assert one.strangers > 0
    await one.close()
    await other.close()


async def test_connect_when_the_candidates_come_later_then_the_link_comes_up() -> None:
    low, high = two_people()
    one, other = Endpoint.open(host="127.0.0.1"), Endpoint.open(host="127.0.0.1")

    async def trickle() -> None:
        await asyncio.sleep(0.05)
        one.announced(
            session=SESSION, key=KEY, me=low, peer_fingerprint=high.fingerprint, candidates=other.candidates()
        )

    empty = one.connect(
        session=SESSION,
        key=KEY,
        me=low,
        peer_name="oak",
        peer_fingerprint=high.fingerprint,
        candidates=[],
        deadline_s=3,
        on_stream=ignore,
    )
    blind = other.connect(
        session=SESSION,
        key=KEY,
        me=high,
        peer_name="elm",
        peer_fingerprint=low.fingerprint,
        candidates=[],
        deadline_s=3,
        on_stream=ignore,
    )
    here, there, _ = await asyncio.gather(empty, blind, trickle())
    assert here.remote_address == other.address
    assert there.remote_address == one.address
    await one.close()
    await other.close()


async def test_stranger_when_it_sends_garbage_then_it_is_ignored_and_the_link_stands() -> None:
    async with linked(on_listener=echo) as pair:
        stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        name = stun.pair_secret(SESSION, KEY, b"a" * 32, b"b" * 32)
        for datagram in (
            b"\x00",
            os.urandom(1200),
            b"\xc0" + os.urandom(1300),
            b"\x40" + os.urandom(40),
            b"\x20hello",
            stun.request(name, "d", 1, os.urandom(12), None),
        ):
            stranger.sendto(datagram, pair.listener_endpoint.address)
        stranger.close()
        stream = await pair.dialler.open(KIND)
        await stream.send(b"still here")
        assert await stream.receive(5) == b"still here"
        assert pair.listener_endpoint.strangers >= 5


async def silent(link: Link, seconds: float, *, within_s: float) -> None:
    """Returns once the peer has been silent for so long; raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while (left_s := seconds - link.silent_s()) > 0:
            await asyncio.wait((link.closed,), timeout=left_s)


async def test_peer_when_it_dies_without_a_word_then_its_silence_is_noticed_within_two_seconds() -> None:
    async with linked() as pair:
        start = asyncio.get_running_loop().time()
        pair.listener_endpoint._udp.close()  # a killed process: the socket goes, nothing is said
        await silent(pair.dialler, 1.5, within_s=5)
        assert asyncio.get_running_loop().time() - start < 2.0
        assert pair.dialler.silent_s() >= 1.5
        assert not pair.dialler.closed.done()


async def test_peer_when_it_lives_and_says_nothing_then_keepalives_bound_its_silence() -> None:
    async with linked() as pair:
        with pytest.raises(TimeoutError):
            await silent(pair.dialler, 0.9, within_s=1.6)


async def test_stream_when_the_peer_resets_it_then_whoever_waits_learns_at_once_and_the_link_stands() -> None:
    async def give_up(stream: Stream) -> None:
        await stream.receive(5)
        stream.reset()

    async with linked(on_listener=give_up) as pair:
        stream = await pair.dialler.open(KIND)
        await stream.send(b"please")
        with pytest.raises(PeerReset):
            await stream.receive(5)
        with pytest.raises(PeerReset):
            await stream.send(b"more")
        again = await pair.dialler.open(KIND)
        await again.send(b"please")
        with pytest.raises(PeerReset):
            await again.receive(5)


async def test_stream_when_the_opener_cancels_then_the_handler_that_waits_gets_peer_reset() -> None:
    outcome: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def serve(stream: Stream) -> None:
        try:
            await stream.receive(5)
            await stream.receive(5)
        except PeerReset as error:
            outcome.set_result(error)
            raise

    async with linked(on_listener=serve) as pair:
        stream = await pair.dialler.open(KIND)
        await stream.send(b"a prompt")
        await asyncio.sleep(0.05)
        stream.reset()
        assert isinstance(await asyncio.wait_for(outcome, 1), PeerReset)


async def test_receive_when_nothing_comes_then_it_times_out_and_loses_nothing() -> None:
    later = asyncio.Event()

    async def slow(stream: Stream) -> None:
        await later.wait()
        await stream.send(b"late")

    async with linked(on_listener=slow) as pair:
        stream = await pair.dialler.open(KIND)
        with pytest.raises(ReceiveTimedOut, match="listener"):
            await stream.receive(0.05)
        later.set()
        assert await stream.receive(5) == b"late"


async def test_send_when_nobody_reads_then_it_waits_and_memory_stays_bounded() -> None:
    release = asyncio.Event()
    all_read = asyncio.Event()
    got: list[int] = []

    async def lazy(stream: Stream) -> None:
        await release.wait()
        while (message := await stream.receive(5)) is not None:
            got.append(len(message))
        all_read.set()

    async with linked(on_listener=lazy) as pair:
        stream = await pair.dialler.open(KIND)
        message, sent = bytes(1 << 20), 0

        async def flood() -> None:
            nonlocal sent
            for _ in range(32):
                await stream.send(message)
                sent += 1

        flooding = asyncio.create_task(flood())
        await asyncio.sleep(1.0)
        held = stream.unacknowledged
        assert not flooding.done()
        assert held <= SEND_BUFFER_BYTES + (1 << 20)
        assert sent <= 10  # one window at the reader, one buffer here, and the message on its way
        release.set()
        await flooding
        stream.finish()
        await asyncio.wait_for(all_read.wait(), 10)
        assert got == [1 << 20] * 32


async def test_link_when_the_peer_closes_then_streams_fail_and_the_reason_is_told() -> None:
    async with linked(on_listener=echo) as pair:
        stream = await pair.dialler.open(KIND)
        waiting = asyncio.create_task(stream.receive(5))
        await asyncio.sleep(0.05)
        await pair.listener.close("the session is over")
        ending = await asyncio.wait_for(asyncio.shield(pair.dialler.closed), 2)
        assert ending.kind == "closed"
        assert "the session is over" in ending.sentence
        with pytest.raises(LinkLost):
            await waiting
        with pytest.raises(LinkLost):
            await pair.dialler.open(KIND)


async def test_streams_when_many_are_used_one_after_the_other_then_none_is_kept() -> None:
    async with linked(on_listener=echo) as pair:
        for _ in range(300):
            stream = await pair.dialler.open(KIND)
            await stream.send(b"request")
            assert await stream.receive(5) == b"request"
            stream.finish()
            assert await stream.receive(5) is None
        await asyncio.sleep(0.1)
        assert pair.dialler._streams.live == pair.listener._streams.live == {}
        assert len(pair.listener._core.connection._streams) < 5


async def test_connect_when_the_same_pair_connects_again_then_the_old_link_is_replaced() -> None:
    low, high = two_people()
    one, other = Endpoint.open(host="127.0.0.1"), Endpoint.open(host="127.0.0.1")
    first, _ = await asyncio.gather(dial(one, low, high, other), dial(other, high, low, one, on_stream=echo))
    second, _ = await asyncio.gather(dial(one, low, high, other), dial(other, high, low, one, on_stream=echo))
    assert first.closed.done()
    stream = await second.open(KIND)
    await stream.send(b"new")
    assert await stream.receive(5) == b"new"
    await one.close()
    await other.close()
