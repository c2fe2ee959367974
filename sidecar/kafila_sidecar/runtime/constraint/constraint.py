"""One answer held to its grammar: which tokens may come next, and whether it is whole."""

from llguidance import LLMatcher

from kafila_sidecar.errors import InvalidInput


class Constraint:
    """Follows one answer from its first token on. For one thread at a time."""

    def __init__(self, matcher: LLMatcher) -> None:
        """Raises: InvalidInput for a grammar that can't be built, or that no answer fits."""
        self._matcher = matcher
        self._check()
        if not any(self.allowed()):
            raise InvalidInput(
                "no answer fits the schema in `format`: it refers to itself without end, or contradicts itself"
            )

    @property
    def is_over(self) -> bool:
        """Whether the answer is whole and nothing may follow."""
        return self._matcher.is_stopped()

    def allowed(self) -> bytes:
        """One bit for each id, the lowest first: those that may come next. A few microseconds, rarely milliseconds.

        Raises: InvalidInput when finding out takes more than it may.
        """
        bits = self._matcher.compute_bitmask()
        self._check()
        return bits

    def take(self, token: int) -> None:
        """The token that was picked.

        Raises: InvalidInput for one that was not allowed, as an answer so far that was made otherwise has it.
        """
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise InvalidInput(f"the schema in `format` can't be used: {_first_line(self._matcher.get_error())}")


def _first_line(error: str) -> str:
    return (error.strip().splitlines() or ["it is too complex"])[0][:300]
