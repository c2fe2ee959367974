"""One request's guesses: from its own text, as many as pay and as it may have."""

from collections.abc import Iterable, Sequence

from kafila_sidecar.serving.guessing.gate import Cost, GuessGate
from kafila_sidecar.serving.guessing.lookup import Lookup


class Guesser:
    """most: guesses a step, as the request wants it; 0 for none."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lookup = Lookup()
        self._gate = GuessGate()

    def saw(self, tokens: Iterable[int]) -> None:
        """The request's text goes on."""
        if self._most:
            self._lookup.add(tokens)

    def paying(self, allowed: int, cost: Cost) -> int:
        """How many guesses a step may have, of up to `allowed`, so that they pay; none where none can be known."""
        allowed = min(self._most, allowed)
        return self._gate.most(allowed, cost) if allowed > 0 and self._lookup.may_know else 0

    def guesses(self, most: int) -> Sequence[int]:
        """What may follow."""
        found = self._lookup.guesses(most) if most else []
        if found:
            self._gate.guessed()
        return found

    def went_without(self) -> None:
        """A circuit without guesses ended."""
        self._gate.went_without()

    def judge(self, guesses: Sequence[int], kept: Sequence[int], *, is_undecided: bool) -> int:
        """A circuit ended in the tokens `kept`; how many guesses were right. is_undecided: the one after them is to be
        done again."""
        right = len(kept) if is_undecided else max(0, len(kept) - 1)
        self._gate.judge(right, right if is_undecided else len(guesses))
        return right
