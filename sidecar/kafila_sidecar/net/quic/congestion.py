"""How fast a link may send: a window that suits activation frames, and a pacer that lets one frame go at once.

aioquic's own start (10 datagrams) and pacing (16 datagrams) make the first 8 KB frame wait for round trips and timers.
"""

from aioquic.quic.congestion.base import register_congestion_control
from aioquic.quic.congestion.reno import RenoCongestionControl
from aioquic.quic.packet_builder import QuicSentPacket
from aioquic.quic.recovery import K_MICRO_SECOND, QuicPacketPacer

ALGORITHM = "kafila"
INITIAL_WINDOW_BYTES = 256 << 10
LARGEST_WINDOW_BYTES = 4 << 20  # 100 ms at 40 MB/s; more would only fill the buffers of the path
BURST_BYTES = 64 << 10  # sent without pacing; an event loop's timers are good for about a millisecond


class FrameCongestionControl(RenoCongestionControl):
    """New Reno (RFC 9002 section 7) between the two bounds above."""

    def __init__(self, *, max_datagram_size: int) -> None:
        super().__init__(max_datagram_size=max_datagram_size)
        self.congestion_window = INITIAL_WINDOW_BYTES

    def on_packet_acked(self, *, now: float, packet: QuicSentPacket) -> None:
        super().on_packet_acked(now=now, packet=packet)
        self.congestion_window = min(self.congestion_window, LARGEST_WINDOW_BYTES)


class FramePacer(QuicPacketPacer):
    """aioquic's token bucket with room for a frame."""

    def update_rate(self, congestion_window: int, smoothed_rtt: float) -> None:
        super().update_rate(congestion_window, smoothed_rtt)
        # Before the first round trip is known it is told as 0, and an empty bucket would never fill.
        bytes_per_s = congestion_window / max(smoothed_rtt, K_MICRO_SECOND)
        self.bucket_max = max(BURST_BYTES, congestion_window // 4) / bytes_per_s


register_congestion_control(ALGORITHM, FrameCongestionControl)
