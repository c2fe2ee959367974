"""Window and pacer: bounds, and that nothing ever stands still."""

import pytest
from aioquic.quic.packet import QuicPacketType
from aioquic.quic.packet_builder import QuicSentPacket
from aioquic.tls import Epoch

from kafila_sidecar.net.quic.congestion import (
    BURST_BYTES,
    INITIAL_WINDOW_BYTES,
    LARGEST_WINDOW_BYTES,
    FrameCongestionControl,
    FramePacer,
)

SIZE = 1200


def sent(pacer: FramePacer, now: float) -> int:
    """Packets that may go at `now`."""
    count = 0
    while pacer.next_send_time(now) is None and count < 10_000:
        pacer.update_after_send(now)
        count += 1
    return count


def packet(at: float) -> QuicSentPacket:
    return QuicSentPacket(
        epoch=Epoch.ONE_RTT,
        in_flight=True,
        is_ack_eliciting=True,
        is_crypto_packet=False,
        packet_number=1,
        packet_type=QuicPacketType.ONE_RTT,
        sent_time=at,
        sent_bytes=SIZE,
    )


@pytest.mark.parametrize("rtt_s", [0.001, 0.02, 0.3])
def test_pacer_when_idle_then_one_frame_goes_at_once_and_the_rest_keeps_the_rate(rtt_s: float) -> None:
    pacer = FramePacer(max_datagram_size=SIZE)
    pacer.update_rate(INITIAL_WINDOW_BYTES, rtt_s)
    assert BURST_BYTES // SIZE <= sent(pacer, 100.0) <= BURST_BYTES // SIZE + 1
    later = sum(sent(pacer, 100.0 + rtt_s * i / 8) for i in range(1, 9))
    assert later * SIZE == pytest.approx(INITIAL_WINDOW_BYTES, rel=0.05)


def test_pacer_when_the_round_trip_is_not_known_yet_then_packets_still_go() -> None:
    pacer = FramePacer(max_datagram_size=SIZE)
    pacer.update_rate(INITIAL_WINDOW_BYTES, 0.0)
    assert sent(pacer, 100.0) > 0
    assert sent(pacer, 100.1) > 0


def test_window_when_everything_is_acknowledged_then_it_grows_to_its_limit_and_no_further() -> None:
    window = FrameCongestionControl(max_datagram_size=SIZE)
    assert window.congestion_window == INITIAL_WINDOW_BYTES
    for _ in range(5_000):
        window.on_packet_sent(packet=packet(1.0))
        window.on_packet_acked(now=1.1, packet=packet(1.0))
    assert window.congestion_window == LARGEST_WINDOW_BYTES
    assert window.bytes_in_flight == 0
