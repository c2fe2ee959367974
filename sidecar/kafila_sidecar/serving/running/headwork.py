"""What the head's own shard does for the requests that run: prompt chunks, and tokens picked and sent on their way.

Requests ask and wait; one run after another serves them, several of them at once where that is due (`gathering`).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import cast

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.runtime.handed_over import HandedOver
from kafila_sidecar.runtime.shard.finite import NotFinite
from kafila_sidecar.runtime.shard.following import Follow
from kafila_sidecar.runtime.shard.picking import CameTrue, Guessed, Pick, Picked
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.gathering import Gathering, InLine, RunTimes
from kafila_sidecar.serving.standstill import ModelThread


@dataclass(frozen=True, slots=True)
class Spent:
    """What a request got, and what it took: seconds of the run, seconds with the wait for it, sequences in the run."""

    compute_s: float
    stay_s: float
    rows: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of a prompt."""

    sequence: int
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class GuessStep:
    """A token at `position`, and guesses of what follows it; what the sequence has from there on was guessed too."""

    sequence: int
    position: int
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class LastState:
    """After the last block, of a text that is to be embedded."""

    sequence: int
    state: HiddenState


Work = Chunk | Follow | GuessStep | Guessed | LastState | Pick
Done = HiddenState | CameTrue | Picked | tuple[float, ...]
Outcome = tuple[Sequence[Done | NotFinite], float]
"""What is made of each row of a run, and the run's seconds."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one request waits for."""

    work: Work
    asked: float
    done: "asyncio.Future[tuple[Done, Spent]]"


class HeadWork:
    """Serves one epoch. rows: how many sequences a run has, of so many that are there."""

    def __init__(self, *, shard: Shard, mlx: ModelThread, rows: Callable[[int], int]) -> None:
        self._shard = shard
        self._mlx = mlx
        self._rows = rows
        self._line = Gathering[Wanted]()
        self.running = 0  # sequences that are there
        self._expected: list[Pick] = []  # to be prepared together
        self._under_way = 0  # runs
        self._is_due = False  # whether to begin some is about to be looked at
        self._times = RunTimes()

    @property
    def model_can_forget(self) -> bool:
        """Whether the model can take back guesses, on every stage."""
        return self._shard.model_can_forget

    @property
    def model_rewinds(self) -> bool:
        """Whether it can forget any number of tokens."""
        return self._shard.all_rewind

    @property
    def follows(self) -> bool:
        """Whether the sequence that runs is the only one, and its tokens follow one another here, without the ring."""
        return self._shard.runs_ahead and self.running == 1

    async def chunk(self, sequence: int, tokens: Sequence[int]) -> tuple[HiddenState, Spent]:
        """The next tokens of a prompt, embedded and run through our blocks.

        Raises: NotFinite when our blocks make NaN or infinity of them.
        """
        done, spent = await self._ask(Chunk(sequence, tokens), len(tokens))
        assert isinstance(done, HiddenState)
        return done, spent

    async def pick(self, pick: Pick) -> tuple[Picked, Spent]:
        """The token that follows a state, and what goes on its way.

        Raises: NotFinite for scores among which there is no choice, or when our blocks make such numbers.
        """
        done, spent = await self._ask(pick, 1)
        assert isinstance(done, Picked)
        return done, spent

    async def follow(self, row: Follow) -> tuple[Picked, Spent]:
        """The token that follows the row's.

        Raises: NotFinite for scores among which there is no choice.
        """
        done, spent = await self._ask(row, 1)
        assert isinstance(done, Picked)
        return done, spent

    def expect(self, pick: Pick) -> None:
        """Prepares `pick` while the sequence's state, which will be like the pick's, is on its way, together with those
        that are expected at the same moment: where they will have a run of their own."""
        if not self._expected:
            asyncio.get_running_loop().call_soon(self._prepare)
        self._expected.append(pick)

    def _prepare(self) -> None:
        picks, self._expected, rows = self._expected, [], self._rows(self.running)
        for first in range(0, len(picks) - rows + 1, rows):
            self._mlx.when_idle(self._shard.build_pick, picks[first : first + rows])

    async def step(self, step: GuessStep) -> tuple[HiddenState, Spent]:
        """A token and guesses, embedded and run through our blocks.

        Raises: NotFinite when our blocks make NaN or infinity of them.
        """
        done, spent = await self._ask(step, len(step.tokens))
        assert isinstance(done, HiddenState)
        return done, spent

    async def embed(self, last: LastState) -> tuple[tuple[float, ...], Spent]:
        """The embedding.

        Raises: NotFinite; Refused where the architecture's code gives none.
        """
        done, spent = await self._ask(last, 1)
        assert isinstance(done, tuple)
        return done, spent

    async def check(self, check: Guessed) -> tuple[CameTrue, Spent]:
        """Which guesses were right, and the token after them.

        Raises: NotFinite for scores among which there is no choice.
        """
        done, spent = await self._ask(check, 1 + len(check.guesses))
        assert isinstance(done, CameTrue)
        return done, spent

    def enter(self) -> None:
        """One more sequence runs."""
        self.running += 1

    def leave(self, sequence: int) -> None:
        """It runs no longer: what it waits for is not done."""
        self.running -= 1
        for one in self._line.drop(sequence):
            one.work.done.cancel()

    async def release(self, sequence: int) -> None:
        """What it holds is freed."""
        await self._mlx.start(self._shard.release, sequence)

    async def rewind(self, sequence: int, position: int) -> None:
        """It goes on from `position`; what it has from there on is forgotten."""
        await self._mlx.start(self._shard.rewind, sequence, position)

    async def _ask(self, work: Work, tokens: int) -> tuple[Done, Spent]:
        """Picks run together; of all else a run has one."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[Done, Spent]] = loop.create_future()
        is_alone = not isinstance(work, Pick)
        self._line.add(InLine(work.sequence, tokens, is_alone, Wanted(work, monotonic(), done)))
        if not self._is_due and (not self._under_way or self._shard.hands_over):
            self._is_due = True
            loop.call_soon(self._begin)  # so that who asks at the same moment is in the same run
        return await done

    def _begin(self) -> None:
        """The runs that are due."""
        self._is_due = False
        while self._may_begin():
            run = [one.work for one in self._line.next(self._rows(self.running))]
            try:
                outcome = cast("asyncio.Future[Outcome]", self._mlx.start(self._made, [one.work for one in run]))
            except KafilaError as error:
                self._tell(run, [error] * len(run), 0.0)
                continue
            self._under_way += 1
            outcome.add_done_callback(partial(self._ended, run))
            for row in (one.work for one in run if isinstance(one.work, Follow)):
                self._mlx.when_idle(self._shard.prepare_follow, row.sequence)  # while what came of it is told

    def _may_begin(self) -> bool:
        most_rows = self._rows(self.running)
        return self._line.is_due(most_rows, under_way=self._under_way, hands_over=self._shard.hands_over)

    def _ended(self, run: Sequence[Wanted], outcome: "asyncio.Future[Outcome]") -> None:
        """Whatever went wrong in a run is told to those who were in it."""
        self._under_way -= 1
        if outcome.cancelled():
            for one in run:
                one.done.cancel()
        elif error := outcome.exception():
            self._tell(run, [error] * len(run), 0.0)
        else:
            self._tell(run, *outcome.result())
        self._begin()

    def _tell(self, run: Sequence[Wanted], made: Sequence[Done | BaseException], compute_s: float) -> None:
        now = monotonic()
        for one, what in zip(run, made, strict=True):
            if one.done.done():
                continue  # its request was given up
            if isinstance(what, BaseException):
                one.done.set_exception(what)
            else:
                one.done.set_result((what, Spent(compute_s, now - one.asked, len(run))))

    def _made(self, run: Sequence[Work]) -> "Outcome | HandedOver[Outcome]":
        """What is made of each, and the seconds of the run."""
        began = monotonic()
        picks = [one for one in run if isinstance(one, Pick)]
        if not picks:
            return [self._made_alone_or_why(run[0])], self._times.spent_s(began, monotonic())
        if not self._shard.hands_over:
            return self._shard.pick(picks), self._times.spent_s(began, monotonic())
        given = self._shard.hand_over_pick(picks)
        return HandedOver(lambda: (given.finish(), self._times.spent_s(began, monotonic())))

    def _made_alone_or_why(self, work: Work) -> Done | NotFinite:
        try:
            return self._made_alone(work)
        except NotFinite as error:
            return error

    def _made_alone(self, work: Work) -> Done:
        match work:
            case Chunk(sequence, tokens):
                return self._shard.embed_and_blocks(sequence, tokens)
            case GuessStep(sequence, position, tokens):
                return self._shard.step(sequence, position, tokens)
            case Follow():
                return self._shard.follow(work)
            case LastState(sequence, state):
                return self._shard.embedding(sequence, state)
            case Guessed():
                return self._shard.check_guesses(work)
        raise TypeError(f"{work} is no work that is done alone")
