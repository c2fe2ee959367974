"""Runs that are handed over to a device while the next one is built: the same bits, on whatever thread they end."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import TypeVar

import pytest

from kafila_sidecar.runtime.handed_over import HandedOver
from kafila_sidecar.runtime.shard.finite import NotFinite
from kafila_sidecar.runtime.shard.picking import Pick, Picked
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.runtime.text.options import SamplingOptions
from kafila_sidecar.runtime.text.sample import Sampler
from tests.exact.shards import RingOfShards, over_the_wire
from tests.exact.test_ahead import DRAWN, FORMS, GREEDY
from tests.exact.test_tiny import CUTS, PROMPT
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx

T = TypeVar("T")
LENGTHS = {1: 21, 2: 9, 3: 30, 4: 5}
OPTIONS = {1: GREEDY, 2: DRAWN, 3: GREEDY, 4: GREEDY}
ROUNDS = 12


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("handed over")


def elsewhere(finish: Callable[[], T]) -> T:
    """What comes of it on another thread."""
    made: list[T] = []
    thread = Thread(target=lambda: made.append(finish()))
    thread.start()
    thread.join()
    return made[0]


class Decoder:
    """A ring that decodes sequences in runs, each of which it hands over, or none."""

    def __init__(self, folder: Path, cuts: Sequence[int], *, hands_over: bool, prepares_late: bool = False) -> None:
        """prepares_late: a run is built once more when it is under way, as by who finds time only then."""
        self.ring = RingOfShards(folder, cuts)
        self._hands_over, self._prepares_late = hands_over, prepares_late
        self._samplers = {sequence: Sampler(OPTIONS[sequence], PROMPT[:length]) for sequence, length in LENGTHS.items()}
        self.states: dict[int, HiddenState] = {}
        for sequence, length in LENGTHS.items():
            self.ring.prefill(sequence, PROMPT[: length - 1])
            self.states[sequence] = self.ring.shards[0].embed_and_blocks(sequence, PROMPT[length - 1 : length])

    def step(self, *runs: Sequence[int]) -> list[list[Picked | NotFinite]]:
        """The next tokens of each run's sequences; of those runs each is built before one before it has ended."""
        for shard in self.ring.shards[1:]:
            rows = [[(sequence, over_the_wire(self.states[sequence])) for sequence in run] for run in runs]
            for run, made in zip(runs, self._ended([self._run(shard, one) for one in rows]), strict=True):
                self.states |= {seq: one for seq, one in zip(run, made, strict=True) if isinstance(one, HiddenState)}
        picks = [
            [Pick(seq, over_the_wire(self.states[seq]), self._samplers[seq], goes_on=True) for seq in run]
            for run in runs
        ]
        told = self._ended([self._pick(self.ring.shards[0], one) for one in picks])
        for run, picked in zip(runs, told, strict=True):
            for sequence, one in zip(run, picked, strict=True):
                if isinstance(one, Picked) and one.state:
                    self.states[sequence] = one.state
        return told

    def _run(self, shard: Shard, rows: list[tuple[int, HiddenState]]) -> HandedOver[list[HiddenState | NotFinite]]:
        if self._hands_over:
            given = shard.hand_over_rows(rows)
            if self._prepares_late:
                shard.build_steps([(sequence, state.position) for sequence, state in rows], rows[0][1])
            return given
        made = shard.run_rows(rows)
        return HandedOver(lambda: made)

    def _pick(self, shard: Shard, picks: list[Pick]) -> HandedOver[list[Picked | NotFinite]]:
        if self._hands_over:
            given = shard.hand_over_pick(picks)
            if self._prepares_late:
                shard.build_pick(picks)
            return given
        picked = shard.pick(picks)
        return HandedOver(lambda: picked)

    def _ended(self, given: Sequence[HandedOver[T]]) -> list[T]:
        return [elsewhere(one.finish) if self._hands_over else one.finish() for one in given]


@pytest.mark.parametrize("prepares_late", [False, True], ids=["", "prepared late"])
@pytest.mark.parametrize("form", FORMS)
def test_run_when_handed_over_and_another_is_built_meanwhile_then_bit_for_bit_what_they_are_one_by_one(
    folders: Path, form: str, prepares_late: bool
) -> None:
    """A step prepared too late is none of the next token: the sampler knows of this one only when it is told."""
    folder = tiny_folder(folders / form, **FORMS[form])
    plain = Decoder(folder, CUTS[3], hands_over=False)
    handing = Decoder(folder, CUTS[3], hands_over=True, prepares_late=prepares_late)
    runs: tuple[Sequence[int], ...] = ((1, 2), (3, 4))
    if not plain.ring.shards[0].takes_rows:
        runs = ((1,), (2,), (3,), (4,))
    for number in range(ROUNDS):
        turned = runs[number % len(runs) :] + runs[: number % len(runs)]
        assert plain.step(*turned) == handing.step(*turned)
    for decoder in (plain, handing):
        decoder.ring.close()


def test_run_when_handed_over_and_its_sequence_is_released_before_it_ends_then_nothing_is_left(folders: Path) -> None:
    decoder = Decoder(tiny_folder(folders / "f32"), CUTS[1], hands_over=True)
    last = decoder.ring.shards[1]
    given = last.hand_over_rows([(1, over_the_wire(decoder.states[1]))])
    last.release(1)
    [made] = elsewhere(given.finish)
    assert isinstance(made, HiddenState)
    for sequence in (2, 3, 4):
        last.release(sequence)
    assert last.kv_bytes == 0
    decoder.ring.close()


def test_pick_when_rows_have_options_of_many_kinds_then_each_is_what_it_is_alone(folders: Path) -> None:
    """Those that take the most likely token are picked at once, and others one by one."""
    folder = tiny_folder(folders / "bf16", dtype="bf16")
    kinds = [GREEDY, DRAWN, SamplingOptions(temperature=0.0, repeat_penalty=1.5)]
    for options in ([GREEDY] * 4, [kinds[number % 3] for number in range(4)]):
        told = []
        for runs in ([(1,), (2,), (3,), (4,)], [(1, 2, 3, 4)]):
            decoder = Decoder(folder, CUTS[1], hands_over=False)
            decoder._samplers = {seq: Sampler(options[seq - 1], PROMPT[: LENGTHS[seq]]) for seq in LENGTHS}
            rounds = [[one for run in decoder.step(*runs) for one in run] for _ in range(6)]
            told.append([[one.token for one in picked if isinstance(one, Picked)] for picked in rounds])
            decoder.ring.close()
        assert told[0] == told[1]
