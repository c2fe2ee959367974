"""What the head asks of a small model that guesses beside the text itself."""

from collections.abc import Sequence
from typing import Protocol

from kafila_sidecar.serving.standstill import ModelThread


class Draft(Protocol):
    """Guesses for all requests of one epoch's head, each by its number."""

    @property
    def token_s(self) -> float | None:
        """What a guess takes; None as long as that is not known."""

    async def guesses(self, request: int, text: Sequence[int], most: int) -> Sequence[int]:
        """What may follow a text; nothing where it has not read enough of it yet."""

    def forget(self, request: int) -> None:
        """The request is over."""


class Drafts(Protocol):
    """A session's draft model on this machine, from one epoch to the next."""

    def begin(self, mlx: ModelThread) -> Draft | None:
        """What it guesses for the requests of one epoch, on this thread; None where it is not in memory."""
