"""What came of `make chaos`: answers, pauses and times to be ready again by kind of blow, memory and descriptors."""

import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ties import is_same_or_tie
from tests.support.trouble import Pause

LOST_S = 60.0  # so long after its processes ended a machine's clients may get errors that are nobody's fault
REPLAY_S = 3.0  # from everybody ready until an answer goes on: its prompt is read again, in its turn
CALM, SEVERAL = "between blows", "several, one by one"
COLUMNS = ("blow", "times", "answers", "right", "tied", "own", "errors", "wrong", "pause", "99 %", "longest", "ready")
HEAD = "{:<22}{:>6}{:>8}{:>7}{:>6}{:>6}{:>7}{:>7}{:>8}{:>8}{:>8}{:>8}"
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Blow:
    """Something that was done to a machine. ready_s: from its end until all were ready; None where the next one did not
    wait for it. dead: whose processes it ended. Times as in `Pause`."""

    what: str
    member: str
    began: float
    ended: float
    ready_s: float | None
    dead: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """What a client got. error: empty if the answer came to its end."""

    member: str
    prompt: str
    text: str
    error: str
    began: float
    ended: float
    pause: Pause


@dataclass(frozen=True, slots=True)
class Weight:
    """What the processes of one member take. held_bytes: of that the weights, which each plan divides anew."""

    rss_bytes: int
    held_bytes: int
    descriptors: int


def causes_of(pause: Pause, blows: Sequence[Blow]) -> list[Blow]:
    """The blows, which are in the order of time, that a pause may be the doing of: until all were ready after each, and
    what had broken off could be read again. Where one was not waited for, its doing goes on with the next one's."""
    causes: list[Blow] = []
    over = 0.0
    for blow in reversed(blows):
        over = over if blow.ready_s is None and over else blow.ended + (blow.ready_s or 0.0) + REPLAY_S
        if blow.began <= pause.ended and pause.began <= over:
            causes.append(blow)
    return causes[::-1]


@dataclass(slots=True)
class ChaosReport:
    """What happened, each in the order of time."""

    right: dict[str, str] = field(default_factory=dict)
    answers: list[ReadAnswer] = field(default_factory=list)
    blows: list[Blow] = field(default_factory=list)
    weights: dict[str, list[Weight]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def show(self, folder: Path) -> None:
        """`folder`: of the checkpoint, where texts that differ are looked into."""
        by_blow: dict[str, list[ReadAnswer]] = {}
        for answer in self.answers:
            by_blow.setdefault(self._blow_of(answer), []).append(answer)
        print(HEAD.format(*COLUMNS))
        for what in sorted(by_blow.keys() | {blow.what for blow in self.blows}):
            self._row(what, [blow for blow in self.blows if blow.what == what], by_blow.get(what, []), folder)
        struck = [one for what, answers in by_blow.items() if what != CALM for one in answers]
        self._row("all blows", self.blows, struck, folder)
        self._show_longest()
        self._show_rest(folder)

    def _causes(self, answer: ReadAnswer) -> list[Blow]:
        """Of its longest pause, or of its error."""
        is_paused = answer.pause.ended and not answer.error
        return causes_of(answer.pause if is_paused else Pause(answer.began, answer.ended), self.blows)

    def _blow_of(self, answer: ReadAnswer) -> str:
        causes = self._causes(answer)
        return SEVERAL if len(causes) > 1 else causes[0].what if causes else CALM

    def _show_longest(self) -> None:
        """The longest pauses, and what befell whom meanwhile."""
        for answer in sorted(self.answers, key=lambda one: one.pause.seconds, reverse=True)[:SHOWN]:
            pause = answer.pause
            befell = ", ".join(f"{blow.what} ({blow.member}, {_clock(blow.began)})" for blow in self._causes(answer))
            print(f"  {pause.seconds:.1f} s at {answer.member} from {_clock(pause.began)}: {befell or CALM}")

    def _row(self, what: str, blows: Sequence[Blow], answers: Sequence[ReadAnswer], folder: Path) -> None:
        judged = Counter(self._judged(answer, folder) for answer in answers)
        pauses = sorted(answer.pause.seconds for answer in answers if not answer.error)
        ready = [blow.ready_s for blow in blows if blow.ready_s is not None]
        counts = (judged[kind] for kind in ("right", "tied", "own", "error", "wrong"))
        late = pauses[min(len(pauses) - 1, int(0.99 * len(pauses)))] if pauses else 0.0
        seconds_each = (
            statistics.median(pauses or [0.0]),
            late,
            max(pauses, default=0.0),
            statistics.median(ready or [0.0]),
        )
        print(HEAD.format(what, len(blows), len(answers), *counts, *(f"{one:.2f} s" for one in seconds_each)))

    def _judged(self, answer: ReadAnswer, folder: Path) -> str:
        if answer.error:
            return "own" if self._was_own(answer) else "error"
        right = self.right[answer.prompt]
        if answer.text == right:
            return "right"
        return "tied" if is_same_or_tie(folder, answer.prompt, right, answer.text) else "wrong"

    def _was_own(self, answer: ReadAnswer) -> bool:
        """Whether the machine where it was typed lost its processes meanwhile, or shortly before."""
        return any(
            answer.member in blow.dead and blow.began <= answer.ended and answer.began <= blow.ended + LOST_S
            for blow in self.blows
        )

    def _show_rest(self, folder: Path) -> None:
        errors = Counter((self._judged(one, folder), one.error) for one in self.answers if one.error)
        for (kind, error), count in errors.most_common(SHOWN):
            print(f"  {kind}, {count} x {error[:160]}")
        for sentence in self.faults:
            print(f"  {sentence}")
        for answer in self._wrong(folder):
            print(f"  wrong: {answer.prompt!r} at {answer.member}: {answer.text!r}")
        for name, weights in self.weights.items():
            first, last = weights[0], weights[-1]
            rss = f"RSS {first.rss_bytes >> 20} to {last.rss_bytes >> 20} MiB"
            held = f"weights {first.held_bytes >> 20} to {last.held_bytes >> 20} MiB"
            print(f"{name}: {rss}, of it {held}, descriptors {first.descriptors} to {last.descriptors}")

    def _wrong(self, folder: Path) -> Iterable[ReadAnswer]:
        return [answer for answer in self.answers if self._judged(answer, folder) == "wrong"][:SHOWN]


def _clock(moment: float) -> str:
    """The time of day of a moment of `time.monotonic`, as logs have it."""
    return time.strftime("%H:%M:%S", time.localtime(time.time() - time.monotonic() + moment))
