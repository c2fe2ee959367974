"""What came of `make chaos`: answers, pauses and times to be ready again by kind of blow, memory and descriptors."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ties import is_same_or_tie
from tests.support.trouble import Pause

AFTERMATH_S = 60.0  # what comes later is no blow's doing
CALM = "nothing"
COLUMNS = ("blow", "times", "answers", "right", "tied", "own", "errors", "wrong", "pause", "99 %", "longest", "ready")
HEAD = "{:<22}{:>6}{:>8}{:>7}{:>6}{:>6}{:>7}{:>7}{:>8}{:>8}{:>8}{:>8}"
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Blow:
    """Something that was done to a machine. dead: whose processes it ended. Times as in `Pause`."""

    what: str
    began: float
    ended: float
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


@dataclass(slots=True)
class ChaosReport:
    """`ready_s`: by kind, from a blow's end until all were ready; None where the next one did not wait for it."""

    right: dict[str, str] = field(default_factory=dict)
    answers: list[ReadAnswer] = field(default_factory=list)
    blows: list[Blow] = field(default_factory=list)
    ready_s: dict[str, list[float | None]] = field(default_factory=dict)
    weights: dict[str, list[Weight]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def show(self, folder: Path) -> None:
        """`folder`: of the checkpoint, where texts that differ are looked into."""
        by_blow: dict[str, list[ReadAnswer]] = {}
        for answer in self.answers:
            by_blow.setdefault(self._blow_of(answer), []).append(answer)
        times = Counter(blow.what for blow in self.blows)
        print(HEAD.format(*COLUMNS))
        for what in sorted(by_blow.keys() | times.keys()):
            self._row(what, times[what], by_blow.get(what, []), folder)
        self._row(
            "all blows", len(self.blows), [one for what in by_blow if what != CALM for one in by_blow[what]], folder
        )
        self._show_rest(folder)

    def _blow_of(self, answer: ReadAnswer) -> str:
        """The latest one that may have held it up."""
        until = answer.pause.ended or answer.ended
        earlier = (blow for blow in self.blows if blow.began <= until and answer.began <= blow.ended + AFTERMATH_S)
        last = max(earlier, key=lambda blow: blow.began, default=None)
        return CALM if last is None or answer.ended < last.began else last.what

    def _row(self, what: str, times: int, answers: Sequence[ReadAnswer], folder: Path) -> None:
        judged = Counter(self._judged(answer, folder) for answer in answers)
        pauses = sorted(answer.pause.seconds for answer in answers if not answer.error)
        known = (
            seconds for kind, all_s in self.ready_s.items() if kind == what or what == "all blows" for seconds in all_s
        )
        ready = [seconds for seconds in known if seconds is not None]
        counts = (judged[kind] for kind in ("right", "tied", "own", "error", "wrong"))
        late = pauses[min(len(pauses) - 1, int(0.99 * len(pauses)))] if pauses else 0.0
        seconds_each = (
            statistics.median(pauses or [0.0]),
            late,
            max(pauses, default=0.0),
            statistics.median(ready or [0.0]),
        )
        print(HEAD.format(what, times, len(answers), *counts, *(f"{one:.2f} s" for one in seconds_each)))

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
            answer.member in blow.dead and blow.began <= answer.ended and answer.began <= blow.ended + AFTERMATH_S
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
