"""What one request took, stage by stage and hop by hop, beside what the plan predicted. One JSON line each.

All times are seconds on the head's monotonic clock, or durations that the other stages measured on their own; no
clock is compared with another machine's. A circuit's network time is what is left of it after every stage's residence;
the hops share it in proportion to their links' round trips.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from statistics import mean, median, mode
from typing import Any, BinaryIO

from kafila_planner import PlannedHop, first_token_s
from kafila_proto import ring_pb2
from kafila_sidecar.session.coordination.effects import Proposal
from kafila_sidecar.session.coordination.messages import LONGEST_S, SHORTEST_S

LARGEST_FILE_BYTES = 16 * 1024 * 1024  # then the file starts anew, the old one kept beside it


@dataclass(frozen=True, slots=True)
class Circuit:
    """One turn round the ring.

    compute_s, residence_s: per stage in ring order, of the whole runs that it was in; rows: sequences in each of them;
    circuit_s: from the head's first computation to its token, or from one token to the next. guesses: tokens that it
    had beside a certain one; right: how many of them came true; drafted: how many a draft model made.
    apart: whether its guesses ran ahead, each in
    a circuit of its own. was_behind: others of its sequence, when it set out.
    """

    compute_s: tuple[float, ...]
    residence_s: tuple[float, ...]
    circuit_s: float
    sent_bytes: int
    received_bytes: int
    rows: tuple[int, ...] = ()
    guesses: int = 0
    right: int = 0
    drafted: int = 0
    apart: bool = False
    was_behind: bool = False

    @property
    def tokens(self) -> int:
        """That went round in it."""
        return 1 if self.apart else 1 + self.guesses

    def was_alone(self, stage: int) -> bool:
        """Whether a stage ran for one token of this sequence alone: only then is its time what the plan predicts."""
        return stage < len(self.compute_s) and self.rows_at(stage) == 1 and self.tokens == 1

    def rows_at(self, stage: int) -> int:
        """Sequences in the stage's run."""
        return self.rows[stage] if stage < len(self.rows) else 1

    @property
    def network_s(self) -> float:
        return max(0.0, self.circuit_s - sum(self.residence_s))


class RequestTrace:
    """Collects the circuits of one run of a request and turns them into a record. replay: what the run took up."""

    def __init__(
        self, proposal: Proposal, *, request: str, prompt_tokens: int, began: float, replay: ring_pb2.Replay
    ) -> None:
        self._proposal = proposal
        self._replays = replay.times
        self._replayed_tokens = len(replay.answer)
        self._before_s = (replay.prompt_s, replay.output_s)
        self._request = request
        self._prompt_tokens = prompt_tokens
        self._began = began
        self._started: float | None = None
        self._first_token: float | None = None
        self._last_token: float | None = None
        self._prefill: list[Circuit] = []
        self._decode: list[Circuit] = []
        self._absorbed_bytes = 0  # of prompt chunks that went out and never came back
        self._exact_tokens, self._why_no_guesses = 1, ""
        self._reused_tokens = 0
        self.output_tokens = 0

    def admitted(self, now: float) -> None:
        """The request left the queue."""
        self._started = now

    @property
    def has_begun(self) -> bool:
        return self._started is not None

    def reused(self, tokens: int) -> None:
        """So many of the first tokens were in every stage's caches."""
        self._reused_tokens = tokens

    def absorbed(self, sent_bytes: int) -> None:
        """A chunk of the prompt went out, up to the last stage's caches."""
        self._absorbed_bytes += sent_bytes

    def steps(self, exact_tokens: int, why_no_guesses: str) -> None:
        """What held of the ring's steps: with how many tokens they are exact, and why none had guesses, if so."""
        self._exact_tokens, self._why_no_guesses = exact_tokens, why_no_guesses

    def token(self, circuit: Circuit, now: float, tokens: int = 1) -> None:
        """A circuit ended in so many tokens of the answer; the first one ends the prefill."""
        self.output_tokens += tokens
        self._last_token = now
        if self._first_token is None:
            self._first_token = now
            self._prefill.append(circuit)
        else:
            self._decode.append(circuit)

    @property
    def decoded(self) -> Sequence[Circuit]:
        """The circuits after the first token."""
        return tuple(self._decode)

    @property
    def prompt_s(self) -> float:
        """From the queue's end to the first token."""
        if self._started is None or self._first_token is None:
            return 0.0
        return self._first_token - self._started

    @property
    def output_s(self) -> float:
        """From the first token to the last."""
        if self._first_token is None or self._last_token is None:
            return 0.0
        return self._last_token - self._first_token

    def spent_s(self, now: float) -> tuple[float, float]:
        """What prompt and answer took in all runs until now; the replay of an answer counts as the answer's. As in
        stock an answer goes on until all is done that its last token takes, and one of a single token, which is the
        prompt's, takes no time."""
        prompt_s, output_s = self._before_s
        answer_s = 0.0 if self._first_token is None else now - self._first_token
        if not self._replayed_tokens:
            return self.prompt_s, answer_s if self.output_tokens > 1 else 0.0
        return prompt_s, output_s + self.prompt_s + answer_s

    def record(self, *, reason: str, link_rtt_s: Mapping[frozenset[str], float]) -> dict[str, Any]:
        """The JSON record; `reason`: "stop", "length", "cancelled" or the error's code. What circuits, stages and hops
        took is 0 where no token came after the first one: that one's circuit waits for the prompt."""
        steps = [one for one in self._decode if one.tokens == 1 and not one.was_behind] or self._decode
        circuit_s = _median(step.circuit_s for step in steps)
        network_s = _median(step.network_s for step in steps)
        stages = self._stages(steps)
        busiest = max((stage["measured_s"] for stage in stages), default=0.0)
        average = mean(stage["measured_s"] for stage in stages) if stages else 0.0
        return {
            "request": self._request,
            "epoch": self._proposal.epoch,
            "ended": reason,
            "prompt_tokens": self._prompt_tokens,
            "output_tokens": self._replayed_tokens + self.output_tokens,
            "reused_tokens": self._reused_tokens,
            "replays": self._replays,
            "replayed_tokens": self._replayed_tokens,
            "queue_s": (self._started or self._began) - self._began,
            "ttft_s": (self._first_token or self._began) - self._began,
            "prefill_s": self.prompt_s,
            "decode_s": self.output_s,
            "tokens_per_s": (self.output_tokens - 1) / self.output_s if self.output_s > 0 else 0.0,
            "circuits": len(self._decode),
            "circuits_per_token": self._circuits_per_token,
            "guesses": sum(circuit.guesses for circuit in self._decode),
            "guesses_ahead": sum(circuit.guesses for circuit in self._decode if circuit.apart),
            "guesses_drafted": sum(circuit.drafted for circuit in self._decode),
            "guesses_right": sum(circuit.right for circuit in self._decode),
            "exact_tokens": self._exact_tokens,
            "why_no_guesses": self._why_no_guesses,
            "circuit_s": circuit_s,
            "network_s": network_s,
            "network_share": network_s / circuit_s if circuit_s else 0.0,
            "utilisation": average / busiest if busiest else 0.0,
            "predicted_circuit_s": self._predicted_circuit_s(link_rtt_s),
            "predicted_ttft_s": self._predicted_ttft_s,
            "stages": stages,
            "hops": self._hops(steps, network_s, link_rtt_s),
        }

    @property
    def _circuits_per_token(self) -> float:
        """Of those after the first token, which the prompt gives."""
        return len(self._decode) / max(1, self.output_tokens - 1)

    def _predicted_circuit_s(self, link_rtt_s: Mapping[frozenset[str], float]) -> float | None:
        """With the round trips that the links have now; when the plan was made they were new and busy."""
        plan = self._proposal.plan
        if plan.compute_s is None or plan.circuit_s is None:
            return None
        return plan.compute_s + fsum(_trip_s(hop, link_rtt_s) or 0.0 for hop in plan.hops)

    @property
    def _predicted_ttft_s(self) -> float | None:
        """Of as much as this prompt had that was new, for whoever need not wait; None where it began with some of its
        answer."""
        if not self._prompt_tokens or self._replayed_tokens:
            return None
        new = self._prompt_tokens - self._reused_tokens
        return first_token_s(self._proposal.problem, self._proposal.plan, new)

    def _stages(self, steps: Sequence[Circuit]) -> list[dict[str, Any]]:
        return [
            {
                "member": stage.member,
                "predicted_s": self._proposal.plan.model_s(i) or 0.0,
                "measured_s": _as_read(_median(step.compute_s[i] for step in steps if step.was_alone(i))),
                "rows": mean(step.rows_at(i) for step in steps) if steps else 0.0,
                **_shared(steps, i),
            }
            for i, stage in enumerate(self._proposal.plan.stages)
        ]

    def _hops(
        self, steps: Sequence[Circuit], network_s: float, link_rtt_s: Mapping[frozenset[str], float]
    ) -> list[dict[str, Any]]:
        hops = self._proposal.plan.hops
        circuits = (*self._prefill, *self._decode)
        sent = self._absorbed_bytes + sum(circuit.sent_bytes for circuit in circuits)
        returned = sum(circuit.received_bytes for circuit in circuits)
        weights = [max(link_rtt_s.get(frozenset((hop.from_member, hop.to_member)), 0.0), 1e-9) for hop in hops]
        return [
            {
                "from": hop.from_member,
                "to": hop.to_member,
                "path": hop.path.value,
                "predicted_s": _trip_s(hop, link_rtt_s),
                "measured_s": _as_read(network_s * weight / sum(weights)),
                "bytes": returned if hop is hops[-1] else sent,
            }
            for hop, weight in zip(hops, weights, strict=True)
        ]


class TraceFile:
    """Appends records to one file per session, bounded in size."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, record: Mapping[str, Any]) -> None:
        """Writes one line; a full disk costs the trace, never the answer: raises OSError to the caller."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size > LARGEST_FILE_BYTES:
            self._path.replace(self._path.with_suffix(".old.jsonl"))
        with open(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "ab+") as file:
            file.write(_after_torn(file) + json.dumps(record).encode() + b"\n")


def _after_torn(file: BinaryIO) -> bytes:
    """A line that a crash has cut short ends here, so that it spoils no other."""
    size = file.seek(0, os.SEEK_END)
    if not size:
        return b""
    file.seek(size - 1)
    return b"" if file.read(1) == b"\n" else b"\n"


def _trip_s(hop: PlannedHop, link_rtt_s: Mapping[frozenset[str], float]) -> float | None:
    """One way, by the link's own round trip where that is known."""
    rtt_s = link_rtt_s.get(frozenset((hop.from_member, hop.to_member)))
    return hop.cost_s if not rtt_s else rtt_s / 2


def _shared(steps: Sequence[Circuit], stage: int) -> dict[str, Any]:
    """Of the runs that a stage made of this and other sequences: how many those had that came most often, and what they
    took; zeros where none came."""
    several = [step for step in steps if stage < len(step.compute_s) and step.rows_at(stage) > 1 and step.tokens == 1]
    rows = mode(step.rows_at(stage) for step in several) if several else 0
    took_s = _median(step.compute_s[stage] for step in several if step.rows_at(stage) == rows)
    return {"shared_rows": rows, "shared_s": _as_read(took_s)}


def _as_read(seconds: float) -> float:
    """A time that was measured, within what others believe."""
    return 0.0 if seconds < SHORTEST_S else min(seconds, LONGEST_S)


def _median(values: Any) -> float:
    found = list(values)
    return median(found) if found else 0.0
