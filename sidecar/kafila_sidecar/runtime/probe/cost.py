"""What a stage costs on this machine, as measured. Imports without MLX."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Cost:
    """What a stage costs here. The steps are by batch size; head_s is empty where the head doesn't fit.

    spread: half the middle half of the times of the most blocks run, of their median.
    block_bytes: of one block's weights, as stored. prefill_s: of one block, by tokens of a prompt at once.
    """

    device: str
    dtype: str
    block_bytes: int
    block_s: Mapping[int, float]
    overhead_s: float
    head_s: Mapping[int, float]
    flops_per_s: float
    spread: float
    prefill_s: Mapping[int, float] = field(default_factory=dict)

    def slowed(self, factor: float, shared: float) -> "Cost":
        """Of a machine that takes so many times as long for everything, but for runs of several sequences."""
        return replace(
            self,
            block_s={rows: (factor if rows == 1 else shared) * seconds for rows, seconds in self.block_s.items()},
            overhead_s=factor * self.overhead_s,
            head_s={rows: (factor if rows == 1 else shared) * seconds for rows, seconds in self.head_s.items()},
            flops_per_s=self.flops_per_s / factor,
            prefill_s={tokens: factor * seconds for tokens, seconds in self.prefill_s.items()},
        )
