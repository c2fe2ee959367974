"""A machine on which all that is counted has happened."""

from collections import Counter
from typing import Any

from prometheus_client import CollectorRegistry

from kafila_sidecar.numbers.happened import Happened
from kafila_sidecar.numbers.served import ServedNumbers
from kafila_sidecar.numbers.standing import PresentNumbers, exposition
from kafila_sidecar.serving.trace import Circuit

CIRCUIT = Circuit((0.25, 0.15), (0.3, 0.2), 0.6, 5120, 100, (1, 1))


def record(**changed: Any) -> dict[str, Any]:
    """Of a request that two members answered, as `serving.trace` makes it."""
    return {
        **{"request": "7", "epoch": 3, "ended": "stop", "prompt_tokens": 12, "output_tokens": 5},
        **{"replays": 0, "replayed_tokens": 0, "queue_s": 0.5, "ttft_s": 2.0, "prefill_s": 1.5, "decode_s": 2.0},
        "network_share": 0.2,
        "stages": [
            {"member": "anna", "predicted_s": 0.2, "measured_s": 0.25, "rows": 1.0},
            {"member": "mini", "predicted_s": 0.1, "measured_s": 0.15, "rows": 1.0},
        ],
        "hops": [
            {"from": "anna", "to": "mini", "path": "direct", "predicted_s": 0.02, "measured_s": 0.05, "bytes": 20480},
            {"from": "mini", "to": "anna", "path": "relay", "predicted_s": 0.02, "measured_s": 0.05, "bytes": 400},
        ],
        **changed,
    }


def busy_machine() -> bytes:
    """All that its `/metrics` says."""
    registry = CollectorRegistry()
    served = ServedNumbers(registry)
    served.request_ended(record(), [CIRCUIT] * 4)
    happened = Happened(served)
    happened.look(gone=(), epoch=1)
    happened.look(gone=("mini",), epoch=2)
    now = PresentNumbers(
        version="1.2.3",
        states=Counter(["ready"]),
        present=2,
        links={"mini": ("direct", 0.02), "other": ("relay", 0.05)},
        relay_sent_bytes=10,
    )
    return exposition(registry, now)
