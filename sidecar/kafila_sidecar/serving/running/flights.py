"""One sequence's states on their way round the ring at once: that of a certain token, and behind it those of guesses.

Each has one token, so that every stage computes what it would without any guess, bit for bit. They come back in the
order in which they set out. When a token turns out to be another one than was guessed, all that is behind it is void.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.guessing.guesser import GuessSource
from kafila_sidecar.serving.ring import OnItsWay, Returned, Ring
from kafila_sidecar.serving.running.headwork import GuessStep, HeadWork, Spent


@dataclass(frozen=True, slots=True)
class Guess:
    """A token that may come next."""

    token: int
    source: GuessSource


@dataclass(frozen=True, slots=True)
class Flight:
    """guess: the token that it is of; None: that is certain. began: seconds on the head's clock. before: what the head
    took to make the state, where no circuit counts it."""

    guess: Guess | None
    state: HiddenState
    sent: OnItsWay
    began: float
    before: Spent | None
    was_behind: bool  # others, when it set out


class Flights:
    """Of one sequence."""

    def __init__(self, sequence: int, *, ring: Ring, work: HeadWork) -> None:
        self._sequence = sequence
        self._ring = ring
        self._work = work
        self._line: deque[Flight] = deque()

    @property
    def guesses(self) -> Sequence[int]:
        """That are on their way, behind the token that is certain."""
        return [flight.guess.token for flight in self._line if flight.guess]

    @property
    def first_guess(self) -> Guess | None:
        """The one behind the certain token."""
        return next((flight.guess for flight in self._line if flight.guess), None)

    @property
    def first(self) -> Flight | None:
        """The certain token's, if it is on its way."""
        return self._line[0] if self._line else None

    async def set_out(self, state: HiddenState, *, began: float, before: Spent | None) -> None:
        """The certain token's state sets out. Raises as `Ring.go_round`."""
        await self._add(None, state, began=began, before=before)

    async def follow(self, guess: Guess, *, began: float) -> None:
        """A guess is embedded, and sets out behind the others. Raises as `Ring.go_round` and `HeadWork.step`."""
        position = self._line[-1].state.position + 1
        state, spent = await self._work.step(GuessStep(self._sequence, position, [guess.token]))
        await self._add(guess, state, began=began, before=spent)

    @property
    def is_back(self) -> bool:
        """Whether the certain token's state has returned."""
        return self._line[0].sent.returned.done()

    async def back(self) -> Returned:
        """What comes of the certain token's state. Raises as `Ring.go_round`."""
        return await self._ring.back(self._sequence, self._line[0].sent)

    def settle(self, token: int) -> tuple[Sequence[Guess], int]:
        """This token follows the certain one, which is back: what guesses are judged by that, and how many of them were
        right. Where the first was, it is certain now; where not, none is on its way any more."""
        self._line.popleft()
        guesses = [flight.guess for flight in self._line if flight.guess]
        if not guesses:
            return (), 0
        if guesses[0].token != token:
            self.give_up()
            return guesses, 0
        self._line[0] = replace(self._line[0], guess=None)
        self._ring.goes_on(self._sequence, self._line[0].state.position + 1)
        return guesses[:1], 1

    def give_up(self) -> None:
        """Nobody waits for what is on its way."""
        if self._line:
            self._line.clear()
            self._ring.void(self._sequence)

    def leave(self) -> None:
        """The answer is given up in its midst; what is on its way still comes."""
        if self._line:
            self._line.clear()
            self._ring.leave(self._sequence)

    async def _add(self, guess: Guess | None, state: HiddenState, *, began: float, before: Spent | None) -> None:
        was_behind = bool(self._line)
        sent = await self._ring.set_out(self._sequence, state, is_guess=guess is not None)
        self._line.append(Flight(guess, state, sent, began, before, was_behind))
