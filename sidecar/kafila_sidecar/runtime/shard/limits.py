"""What a stage says of steps with several tokens, and a ring as a whole. No MLX here."""

from dataclasses import dataclass

F32_LEAD = 1e-3  # logits; ten times the largest difference seen between steps of several tokens and single ones


@dataclass(frozen=True, slots=True)
class StepLimits:
    """exact: tokens of one sequence with which a step gives each the bits of a single one; 1 where caches can't forget.
    bounded: tokens with which logits differ by less than `F32_LEAD`, at least `exact`. rows: sequences in one run with
    which each has the bits that it has alone."""

    exact: int = 1
    bounded: int = 1
    rows: int = 1

    def least(self, other: "StepLimits") -> "StepLimits":
        """What holds of both."""
        pairs = zip(self.numbers, other.numbers, strict=True)
        return StepLimits(*(min(pair) for pair in pairs))

    @property
    def numbers(self) -> tuple[int, int, int]:
        return self.exact, self.bounded, self.rows
