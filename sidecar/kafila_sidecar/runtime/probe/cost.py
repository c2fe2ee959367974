"""What a stage costs on this machine, as measured. Imports without MLX."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kafila_planner.correction import Slowness, slowed_steps


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

    def slowed(self, slowness: Slowness) -> "Cost":
        """Of a machine that takes so many times as long."""
        return replace(
            self,
            block_s=_slowed(self.block_s, slowness),
            overhead_s=slowness.alone * self.overhead_s,
            head_s=_slowed(self.head_s, slowness),
            flops_per_s=self.flops_per_s / slowness.alone,
            prefill_s={tokens: slowness.alone * seconds for tokens, seconds in self.prefill_s.items()},
        )


def _slowed(steps: Mapping[int, float], slowness: Slowness) -> Mapping[int, float]:
    return dict(slowed_steps(tuple(sorted(steps.items())), slowness))
