"""What guesses may cost in this very ring, by what its circuits and its busiest stage took."""

from collections.abc import Callable

from kafila_sidecar.serving.guessing.gate import Allowed, StepTimes
from kafila_sidecar.serving.guessing.room import most_ahead, most_guesses
from kafila_sidecar.serving.ring import Ring
from kafila_sidecar.serving.running.headwork import HeadWork
from kafila_sidecar.serving.trace import Circuit


class GuessRoom:
    """Of one epoch. rows: how many sequences a run of this stage has, of so many that are there."""

    def __init__(self, *, ring: Ring, work: HeadWork, rows: Callable[[int], int]) -> None:
        self._ring = ring
        self._work = work
        self._rows = rows
        self._circuit_s = StepTimes()  # of a sequence that runs alone
        self._busiest_s = StepTimes()  # of the stage that takes longest, by the tokens of all rows of a run

    def took(self, circuit: Circuit) -> None:
        """A circuit of the decode has ended."""
        if self._work.running == 1 and not circuit.was_behind:
            self._circuit_s.took(circuit.tokens, circuit.circuit_s)
        busiest = max(range(len(circuit.compute_s)), key=lambda stage: circuit.compute_s[stage])
        self._busiest_s.took(circuit.rows_at(busiest) * circuit.tokens, circuit.compute_s[busiest])

    def now(self, *, is_greedy: bool, wanted_tokens: int, again: int) -> Allowed:
        """Guesses that a request may have next. wanted_tokens: of its answer, at most. again: certain tokens that are
        run once more with the next ones.

        None while runs have rows of several sequences: the head runs a step with guesses, and each one that runs
        ahead, by itself, and what set out by itself goes round by itself, so that each stage has a run more to do.
        While others run too, one in a run, all wait for the busiest stage: so many tokens more cost what they make
        that stage's runs longer.
        """
        running = max(1, self._work.running)
        cost = self._circuit_s.of if running == 1 else self._busiest_s.of
        if self._rows(running) > 1:
            return Allowed(together=0, cost=cost)
        together = most_guesses(
            self._ring.step_limits,
            is_greedy=is_greedy,
            running=running,
            wanted_tokens=wanted_tokens,
            token_bytes=self._ring.token_bytes,
        )
        return Allowed(
            together=max(0, together - again),
            cost=cost,
            ahead=self._ahead(running, wanted_tokens),
            gap_s=running * (self._busiest_s.single_s or 0.0),
        )

    def _ahead(self, running: int, wanted_tokens: int) -> int:
        if not self._ring.has_others or not self._work.model_rewinds:
            return 0
        lone_s, busiest_s = self._circuit_s.single_s, self._busiest_s.single_s
        return most_ahead(lone_s, busiest_s, running=running, wanted_tokens=wanted_tokens)
