"""What the head asks of a small model that guesses beside the text itself."""

from collections.abc import Sequence
from typing import Protocol


class Draft(Protocol):
    """Guesses for all requests of one epoch's head, each by its number."""

    @property
    def token_s(self) -> float | None:
        """What a guess takes; None as long as that is not known."""

    async def guesses(self, request: int, text: Sequence[int], most: int) -> Sequence[int]:
        """What may follow a text; nothing where it has not read enough of it yet."""

    def forget(self, request: int) -> None:
        """The request is over."""
