"""What is so at this moment, for Prometheus: read when it is asked for, and kept nowhere."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


@dataclass(frozen=True, slots=True)
class PresentNumbers:
    """Of all sessions of this machine together; `links`: path and round trip of each, by the member there."""

    version: str
    states: Counter[str] = field(default_factory=Counter)
    present: int = 0
    waiting: int = 0
    answering: int = 0
    sequences: int = 0
    kv_bytes: int = 0
    weight_bytes: int = 0
    links: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    relay_sent_bytes: int = 0
    relay_received_bytes: int = 0


def metrics(now: PresentNumbers) -> Iterable[Metric]:
    """Every name that stands, also where there is nothing to count."""
    yield _by("kafila_build_info", "What runs here; always 1.", "version", {now.version: 1})
    yield _by("kafila_sessions", "Sessions that this machine is in, by state.", "state", now.states)
    yield _one("kafila_members_present", "Members that are there, this one with them.", now.present)
    yield _one("kafila_waiting_requests", "Requests whose turn has not come.", now.waiting)
    yield _one("kafila_answering_requests", "Requests that are read or answered.", now.answering)
    yield _one("kafila_sequences", "Sequences that this machine holds a cache for.", now.sequences)
    yield _one("kafila_kv_bytes", "What those caches take.", now.kv_bytes)
    yield _one("kafila_weight_bytes", "Weights in this machine's memory.", now.weight_bytes)
    paths = Counter(path for path, _ in now.links.values())
    yield _by("kafila_links", "Links of this machine that stand, by path.", "path", paths)
    trips = {member: rtt_s for member, (_, rtt_s) in now.links.items() if rtt_s}
    yield _by("kafila_link_rtt_seconds", "Round trip to a member, without work.", "member", trips)
    carried = CounterMetricFamily(
        "kafila_relay_bytes", "What this machine sent and got through relays.", labels=["direction"]
    )
    carried.add_metric(["sent"], now.relay_sent_bytes)
    carried.add_metric(["received"], now.relay_received_bytes)
    yield carried


class Exposed(Collector):
    """What was counted, and what stands now."""

    def __init__(self, counted: CollectorRegistry, now: PresentNumbers) -> None:
        self._counted = counted
        self._now = now

    def collect(self) -> Iterable[Metric]:
        yield from self._counted.collect()
        yield from metrics(self._now)


def exposition(counted: CollectorRegistry, now: PresentNumbers) -> bytes:
    """As Prometheus reads it: text, version 0.0.4. Without the times at which each series began, which it asks nobody
    for."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    return generate_latest(Exposed(counted, now))


def _one(name: str, says: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, says, value=value)


def _by(name: str, says: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, says, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
