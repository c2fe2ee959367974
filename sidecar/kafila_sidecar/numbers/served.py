"""What was done since this sidecar began: counters and histograms, for Prometheus. docs/numbers.md lists them all."""

from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from kafila_sidecar.serving.trace import Circuit

MOST_MEMBERS = 256  # names that labels tell apart; those who come later are counted together
OTHERS = "others"

_STEP_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_WAIT_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class ServedNumbers:
    """Of all sessions of this machine together. Requests, circuits, stages and hops are counted where the head is."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._names: set[str] = set()
        self.requests = Counter(
            "kafila_requests", "Runs of requests at this head, by how they ended.", ["ended"], registry=registry
        )
        self.prompt_tokens = Counter("kafila_prompt_tokens", "Tokens of prompts that were taken in.", registry=registry)
        self.output_tokens = Counter("kafila_output_tokens", "Tokens of answers.", registry=registry)
        self.circuits = Counter("kafila_circuits", "Turns round the ring that ended in a token.", registry=registry)
        self.queue_s = Histogram(
            "kafila_queue_seconds", "From a request's arrival to its turn.", buckets=_WAIT_S, registry=registry
        )
        self.ttft_s = Histogram(
            "kafila_ttft_seconds", "From a request's arrival to its first token.", buckets=_WAIT_S, registry=registry
        )
        self.token_s = Histogram(
            "kafila_token_seconds", "Each answer's time a token, after the first.", buckets=_STEP_S, registry=registry
        )
        self.circuit_s = Histogram(
            "kafila_circuit_seconds", "One turn round the ring while decoding.", buckets=_STEP_S, registry=registry
        )
        self.stage_s = Histogram(
            "kafila_stage_seconds",
            "What a member computed in one turn round the ring while decoding.",
            ["member"],
            buckets=_STEP_S,
            registry=registry,
        )
        self.hop_s = Histogram(
            "kafila_hop_seconds",
            "Each request's time on the way from one member to the next, one way.",
            ["from_member", "to_member"],
            buckets=_STEP_S,
            registry=registry,
        )
        self.hop_bytes = Counter(
            "kafila_hop_bytes",
            "States and tokens that went from one member to the next.",
            ["from_member", "to_member"],
            registry=registry,
        )
        self.fetched_bytes = Counter(
            "kafila_fetched_bytes", "Weights that came to this disk, from wherever.", registry=registry
        )
        self.losses = Counter("kafila_losses", "Members that this machine took for lost.", registry=registry)
        self.repairs = Counter("kafila_repairs", "Plans that were made after a loss.", registry=registry)
        self.plans = Counter("kafila_plans", "Plans that sessions of this machine took up.", registry=registry)

    def request_ended(self, record: Mapping[str, Any], decoded: Sequence[Circuit]) -> None:
        """`record`: of a run that had its turn, see `serving.trace`; `decoded`: its circuits after the first token."""
        self.requests.labels(record["ended"]).inc()
        tokens = record["output_tokens"] - record["replayed_tokens"]
        self.output_tokens.inc(max(0, tokens))
        self.queue_s.observe(record["queue_s"])
        if tokens > 0:
            self.prompt_tokens.inc(record["prompt_tokens"])
            self.ttft_s.observe(record["ttft_s"])
            self.circuits.inc(1 + len(decoded))
        if tokens > 1:
            self.token_s.observe(record["decode_s"] / (tokens - 1))
            self._hops(record["hops"])
        self._circuits([stage["member"] for stage in record["stages"]], decoded)

    def member(self, name: str) -> str:
        """The label that stands for a member: its name, unless there were too many."""
        if name in self._names or len(self._names) < MOST_MEMBERS:
            self._names.add(name)
            return name
        return OTHERS

    def _circuits(self, members: Sequence[str], decoded: Sequence[Circuit]) -> None:
        stages = [self.stage_s.labels(self.member(member)) for member in members]
        for circuit in decoded:
            self.circuit_s.observe(circuit.circuit_s)
            for stage, took_s in zip(stages, circuit.compute_s, strict=False):
                stage.observe(took_s)

    def _hops(self, hops: Sequence[Mapping[str, Any]]) -> None:
        for hop in hops:
            ends = self.member(hop["from"]), self.member(hop["to"])
            self.hop_s.labels(*ends).observe(hop["measured_s"])
            self.hop_bytes.labels(*ends).inc(hop["bytes"])
