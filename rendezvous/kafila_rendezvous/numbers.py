"""What a rendezvous holds and carries, as numbers for Prometheus: counts alone, of nobody in particular."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafila_rendezvous.errors import CannotServe

HOST = "127.0.0.1"  # whoever collects them from elsewhere brings a proxy that asks who is there


@dataclass(frozen=True, slots=True)
class Holds:
    """At one moment; the last three since the start."""

    connections: int = 0
    rooms: int = 0
    mailboxes: int = 0
    queued_bytes: int = 0
    relay_channels: int = 0
    relay_bytes: int = 0
    relay_dropped: int = 0


class RendezvousNumbers(Collector):
    """Looks when it is asked, on the thread that asks: `look` reads single numbers only."""

    def __init__(self, look: Callable[[], Holds]) -> None:
        self._look = look

    def collect(self) -> Iterable[Metric]:
        now = self._look()
        yield GaugeMetricFamily("kafila_rendezvous_connections", "Connections that are open.", now.connections)
        yield GaugeMetricFamily("kafila_rendezvous_rooms", "Rooms that are open.", now.rooms)
        yield GaugeMetricFamily("kafila_rendezvous_mailboxes", "Mailboxes in them.", now.mailboxes)
        yield GaugeMetricFamily("kafila_rendezvous_queued_bytes", "Mail that waits to be read.", now.queued_bytes)
        yield GaugeMetricFamily("kafila_rendezvous_relay_channels", "Channels of the relay.", now.relay_channels)
        yield CounterMetricFamily("kafila_rendezvous_relay_bytes", "What the relay carried.", now.relay_bytes)
        yield CounterMetricFamily(
            "kafila_rendezvous_relay_dropped_datagrams",
            "Datagrams over an end's budget, or for an end that was not there.",
            now.relay_dropped,
        )


@contextmanager
def told(port: int, look: Callable[[], Holds]) -> Iterator[int]:
    """Answers GET /metrics on this machine until the block is left; gives the port, which is a free one for 0.

    Raises: CannotServe when it can't listen.
    """
    try:
        server, thread = start_http_server(port, addr=HOST, registry=RendezvousNumbers(look))
    except OSError as error:
        raise CannotServe(f"can't answer for --metrics on port {port}: {error.strerror}") from error
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
