"""What is read off this machine when it is measured: seconds, a round at a time. Imports without MLX."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

HEAD = 0  # in a round: the head, beside the numbers of blocks run at a time

Round = Mapping[int, float]  # seconds by the number of blocks run at a time, HEAD among them


@dataclass(frozen=True, slots=True)
class Readings:
    """Seconds as read, by batch size, one entry a round.

    block_bytes: of one block's weights. flops_per_s: 2 · weights · tokens of a prefill over its seconds. prefill_s: of
    one block, by tokens at once.
    """

    block_bytes: int
    rounds_s: Mapping[int, tuple[Round, ...]]
    flops_per_s: float
    prefill_s: Mapping[int, float] = field(default_factory=dict)

    def with_(self, more: "Readings") -> "Readings":
        """Both, as if they had been taken at once."""
        batches = self.rounds_s.keys() | more.rounds_s.keys()
        rounds_s = {batch: (*self.rounds_s.get(batch, ()), *more.rounds_s.get(batch, ())) for batch in sorted(batches)}
        return replace(self, rounds_s=rounds_s)
