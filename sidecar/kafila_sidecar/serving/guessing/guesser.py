"""One request's guesses: from its own text, as many as pay and as it may have."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafila_sidecar.serving.guessing.gate import Cost, Gate
from kafila_sidecar.serving.guessing.lookup import Lookup


@dataclass(slots=True)
class Tally:
    """What became of a request's guesses."""

    circuits: int = 0
    guessed: int = 0
    right: int = 0


class Guesser:
    """most: guesses a step, as the request wants it; 0 for none."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lookup = Lookup()
        self._gate = Gate()
        self.tally = Tally()

    def saw(self, tokens: Iterable[int]) -> None:
        """The request's text goes on."""
        if self._most:
            self._lookup.add(tokens)

    def wanted(self, allowed: int, cost: Cost) -> int:
        """How many guesses the step after the next token may have, of up to `allowed`, so that they pay."""
        allowed = min(self._most, allowed)
        return self._gate.most(allowed, cost) if allowed > 0 and self._lookup.may_know else 0

    def guesses(self, most: int) -> Sequence[int]:
        """What may follow."""
        found = self._lookup.guesses(most) if most else []
        if found:
            self._gate.guessed()
        return found

    def judge(self, guesses: Sequence[int], kept: Sequence[int], *, is_undecided: bool) -> None:
        """A circuit ended; `kept`: the tokens that it gave. is_undecided: the one after them is to be done again."""
        right = len(kept) if is_undecided else max(0, len(kept) - 1)
        self._gate.judge(right, right if is_undecided else len(guesses))
        self.tally.circuits += 1
        self.tally.guessed += len(guesses)
        self.tally.right += right
