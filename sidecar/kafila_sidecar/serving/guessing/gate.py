"""How many guesses pay: by how often they are right, and by what steps of so many tokens took in this very ring.

Guesses go round in one step with the token that they follow, or run ahead: each in a step of its own, sent before it is
known what the one before it came to.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

DECAY = 0.93  # of what is known about guesses, with each guess that was judged
RIGHT, JUDGED = 1.0, 1.8  # what a request begins with: more than every second guess is right
SILENT_STEPS = 16  # without guesses; then one is tried
LONGEST_SILENCE = 128  # each such try that fails doubles the time to the next one, up to this
LATEST = 12  # circuits of so many tokens that are reckoned with
STALE = 400  # circuits; a time from before them is forgotten
TOKEN_SHARE = 0.04  # what a further token adds to a circuit, as long as nothing is known (an H200 took 0.036)
IN_VAIN = 0.1  # of a circuit: what wrong guesses that run ahead cost beside time, since every member computes them

Cost = Callable[[int], float]
"""Seconds of a step with so many tokens."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Guesses that there may be next, whether they pay or not: so many in one step, or so many running ahead. gap_s:
    between one right one of those and the next."""

    together: int
    cost: Cost
    ahead: int = 0
    gap_s: float = inf


@dataclass(frozen=True, slots=True)
class GuessCount:
    """So many guesses in the next step, or so many at once that run ahead of what is known; never both."""

    together: int = 0
    ahead: int = 0


class StepTimes:
    """What steps with 1, 2, … tokens take in one ring."""

    def __init__(self) -> None:
        self._taken: dict[int, deque[tuple[int, float]]] = {}  # by tokens: when, in steps, and seconds
        self._steps = 0
        self._known: dict[int, float] = {}

    def took(self, tokens: int, seconds: float) -> None:
        self._steps += 1
        self._taken.setdefault(tokens, deque(maxlen=LATEST)).append((self._steps, seconds))
        self._known = self._reckoned()

    @property
    def single_s(self) -> float | None:
        """Of a step of one token; None as long as it is not known."""
        return self._known.get(1)

    def of(self, tokens: int) -> float:
        """What a step of so many tokens takes; between known ones in proportion, beyond them by `TOKEN_SHARE`. As long
        as a single token's time is not known, nothing pays beside it."""
        known = self._known
        if 1 not in known:
            return 1.0 if tokens == 1 else inf
        below = max(one for one in known if one <= tokens)
        above = min((one for one in known if one >= tokens), default=None)
        if above is None:
            return known[below] * (1 + TOKEN_SHARE * (tokens - 1)) / (1 + TOKEN_SHARE * (below - 1))
        share = (tokens - below) / (above - below) if above > below else 0.0
        return known[below] + share * (known[above] - known[below])

    def _reckoned(self) -> dict[int, float]:
        """The lower quartile of each, of more tokens never less: what others did to a step in passing is left out."""
        known: dict[int, float] = {}
        least = inf
        for tokens in sorted(self._taken, reverse=True):
            fresh = sorted(seconds for when, seconds in self._taken[tokens] if self._steps - when < STALE)
            if fresh:
                least = known[tokens] = min(least, fresh[len(fresh) // 4])
        return known


class GuessGate:
    """Of one request, for guesses of one kind."""

    def __init__(self) -> None:
        self._right, self._judged = RIGHT, JUDGED
        self._silent, self._patience = 0, SILENT_STEPS

    @property
    def rate(self) -> float:
        """How many of the guesses are right, the latest counting most."""
        return self._right / self._judged

    def judge(self, right: int, made: int) -> None:
        """Of `made` guesses the first `right` ones were right. What follows the first wrong one tells nothing."""
        self._silent = 0
        self._patience = SILENT_STEPS if right else min(2 * self._patience, LONGEST_SILENCE)
        for is_right in [True] * right + [False] * (made > right):
            self._right = DECAY * self._right + is_right
            self._judged = DECAY * self._judged + 1

    def best(self, allowed: Allowed) -> tuple[float, GuessCount]:
        """Those with which a token takes least, and the seconds that it takes then; after long enough a silence one
        guess, to see whether it is right now."""
        counts = range(allowed.together + 1)
        seconds = {GuessCount(n): allowed.cost(1 + n) / expected(self.rate, n) for n in counts}
        if allowed.ahead:
            seconds[GuessCount(ahead=allowed.ahead)] = ahead_s(self.rate, allowed)
        best = min(seconds, key=lambda one: seconds[one])
        least_s = seconds[best]
        if best == GuessCount() and self._silent >= self._patience:
            few = min(1, allowed.together)
            best = GuessCount(few) if few else GuessCount(ahead=min(1, allowed.ahead))
        return least_s, best

    def went_without(self) -> None:
        """A step without any has ended."""
        self._silent += 1


def ahead_s(rate: float, allowed: Allowed) -> float:
    """Seconds a token takes where guesses run ahead: a right one comes as soon behind the token before it as the ring
    lets it; after a wrong one the right token has to go round by itself, behind one that was in its way."""
    lone_s = allowed.cost(1)
    behind_s = max(allowed.gap_s, lone_s / (1 + allowed.ahead))
    return rate * behind_s + (1 - rate) * ((1 + IN_VAIN) * lone_s + allowed.gap_s)


def expected(rate: float, guesses: int) -> float:
    """Tokens of a step, of guesses each of which is right at this rate if those before it were."""
    return sum(rate**number for number in range(guesses + 1))
