"""Steps that are built before their input is there: the same bits, whatever comes in their place."""

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from kafila_sidecar.runtime.shard.picking import Pick, Picked
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.runtime.text.options import SamplingOptions
from kafila_sidecar.runtime.text.sample import Sampler
from tests.exact.shards import RingOfShards, over_the_wire
from tests.exact.test_tiny import CUTS, PROMPT, SLIDING
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx

CONVOLVED = {
    "layer_types": ["conv", "full_attention"] * 3,
    **{"block_dim": 64, "block_ff_dim": 128, "block_multiple_of": 8, "block_ffn_dim_multiplier": 1.0},
    **{
        "block_auto_adjust_ff_dim": False,
        "conv_bias": False,
        "conv_L_cache": 3,
        "norm_eps": 1e-5,
        "rms_norm_eps": None,
        "head_dim": None,
    },
}
FORMS: dict[str, dict[str, Any]] = {
    "f32": {},
    "bf16": {"dtype": "bf16"},
    "4 bits": {"dtype": "bf16", "bits": 4},
    "sliding": {"config": SLIDING},
    "convolved": {"model_type": "lfm2", "config": CONVOLVED},
}
"""What is kept of a sequence: keys and values, packed ones, windows of them, and states of a convolution."""
GREEDY = SamplingOptions(temperature=0.0)
FEW_BYTES = 1024  # of samplers and the like
DRAWN = SamplingOptions(temperature=1.0, seed=3, repeat_penalty=1.3)


class Picker:
    """A ring whose head picks, and which builds every step ahead, or none."""

    def __init__(self, folder: Path, cuts: Sequence[int], *, ahead: bool, together: bool = False) -> None:
        """together: the steps of a run are built in one, not one by one for nothing."""
        self.ring = RingOfShards(folder, cuts)
        self._ahead, self._together = ahead, together
        self._states: dict[int, HiddenState] = {}
        self._samplers: dict[int, Sampler] = {}

    def begin(self, sequence: int, prompt: Sequence[int], options: SamplingOptions) -> None:
        self._samplers[sequence] = Sampler(options, prompt)
        self.ring.prefill(sequence, prompt[:-1])
        self._states[sequence] = self.ring.shards[0].embed_and_blocks(sequence, prompt[-1:])

    def step(self, *sequences: int) -> list[int]:
        """The next token of each, in runs of all of them."""
        rows = [(sequence, self._states[sequence]) for sequence in sequences]
        for shard in self.ring.shards[1:]:
            if self._ahead:
                self._build(shard, rows)
            made = shard.run_rows([(sequence, over_the_wire(state)) for sequence, state in rows])
            rows = [(row[0], one) for row, one in zip(rows, made, strict=True) if isinstance(one, HiddenState)]
        picks = [Pick(sequence, over_the_wire(state), self._samplers[sequence], True) for sequence, state in rows]
        if self._ahead:
            for group in [picks] if self._together else [[pick] for pick in picks]:
                self.ring.shards[0].build_pick(group)
        picked = [one for one in self.ring.shards[0].pick(picks) if isinstance(one, Picked) and one.state]
        for pick, one in zip(picks, picked, strict=True):
            assert one.state is not None
            self._states[pick.sequence] = one.state
        return [one.token for one in picked]

    def at(self, *sequences: int) -> list[tuple[int, int]]:
        """The sequences, and where the steps that they take next belong."""
        return [(sequence, self._states[sequence].position) for sequence in sequences]

    def _build(self, shard: Shard, rows: Sequence[tuple[int, HiddenState]]) -> None:
        if self._together:
            shard.build_steps(self.at(*(sequence for sequence, _ in rows)), rows[0][1])
            return
        for sequence, state in rows:
            shard.build_steps(self.at(sequence), state)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ahead")


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
@pytest.mark.parametrize("cuts", [CUTS[1], CUTS[3]], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_step_when_built_ahead_then_its_bits_are_those_of_one_that_was_not(
    folders: Path, form: str, cuts: tuple[int, ...], together: bool
) -> None:
    folder = tiny_folder(folders / form, **FORMS[form])
    plain, ahead = Picker(folder, cuts, ahead=False), Picker(folder, cuts, ahead=True, together=together)
    runs = [(1,)] * 20 + [(2,), (1,), (1, 2), (2,), (2, 1)] * 3
    if not plain.ring.shards[0].takes_rows:
        runs = [(sequence,) for run in runs for sequence in run]
    told: list[list[list[int]]] = []
    for ring in (plain, ahead):
        ring.begin(1, PROMPT[:21], GREEDY)
        ring.begin(2, PROMPT[:9], DRAWN)
        told.append([ring.step(*run) for run in runs])
    assert told[0] == told[1]
    states = [ring._states[sequence] for ring in (plain, ahead) for sequence in (1, 2)]
    assert [bytes(state.payload) for state in states[:2]] == [bytes(state.payload) for state in states[2:]]
    for ring in (plain, ahead):
        ring.ring.close()


@pytest.mark.parametrize("form", ["f32", "bf16", "sliding"])
def test_steps_when_built_ahead_together_and_others_come_in_their_place_then_no_trace_is_left(
    folders: Path, form: str
) -> None:
    """One of them alone, them in another order, some and another one, or one of them is over."""
    folder = tiny_folder(folders / form, **FORMS[form])
    plain, ahead = Picker(folder, CUTS[3], ahead=False), Picker(folder, CUTS[3], ahead=False)
    for ring in (plain, ahead):
        for sequence, (length, options) in enumerate([(21, GREEDY), (9, DRAWN), (30, GREEDY)], 1):
            ring.begin(sequence, PROMPT[:length], options)
    for built, comes in (((1, 2), (1,)), ((1, 2), (2, 1)), ((1, 2), (1, 3)), ((1, 2, 3), (1, 2)), ((1, 2), (1, 2))):
        for shard in ahead.ring.shards[1:]:
            shard.build_steps(ahead.at(*built), ahead._states[1])
        picks = [Pick(number, ahead._states[number], ahead._samplers[number], True) for number in built]
        ahead.ring.shards[0].build_pick(picks)
        assert plain.step(*comes) == ahead.step(*comes)
    for shard in ahead.ring.shards[1:]:
        shard.build_steps(ahead.at(1, 2), ahead._states[1])
    for ring in (plain, ahead):
        ring.ring.release(2)
    assert plain.step(1, 3) == ahead.step(1, 3)
    for ring in (plain, ahead):
        ring.ring.close()


def test_step_when_built_ahead_and_the_sequence_is_over_then_nothing_is_left(folders: Path) -> None:
    ring = Picker(tiny_folder(folders / "f32"), CUTS[1], ahead=True)
    ring.begin(1, PROMPT[:9], GREEDY)
    ring.step(1)
    for shard in ring.ring.shards:
        shard.release(1)
        shard.build_steps(ring.at(1), ring._states[1])
        assert shard.active == 0
    ring.ring.close()


@pytest.mark.parametrize("closed", [False, True])
def test_sequence_when_it_ends_with_a_step_built_ahead_then_its_memory_is_free_at_once(
    folders: Path, closed: bool
) -> None:
    """What waits for the collector of cycles keeps caches, and weights that the next plan has given to others."""
    folder = tiny_folder(folders / "f32")
    gc.collect()
    gc.disable()
    try:
        nothing = mx.get_active_memory()
        ring = Picker(folder, CUTS[1], ahead=True)
        weights = mx.get_active_memory()
        ring.begin(1, PROMPT[:9], GREEDY)
        ring.step(1)
        for shard in ring.ring.shards:
            shard.build_steps(ring.at(1), ring._states[1])
        ring.ring.shards[0].build_pick([Pick(1, ring._states[1], ring._samplers[1], True)])
        if closed:
            ring.ring.close()
        else:
            ring.ring.release(1)
        assert mx.get_active_memory() - (nothing if closed else weights) < FEW_BYTES
    finally:
        gc.enable()


def test_step_when_built_ahead_then_evaluating_it_copies_no_cache(folders: Path) -> None:
    ring = Picker(tiny_folder(folders / "f32"), CUTS[1], ahead=True)
    ring.begin(1, [*PROMPT] * 8, GREEDY)
    ring.step(1)
    shard, state = ring.ring.shards[1], ring._states[1]
    held = mx.get_active_memory()
    shard.build_steps(ring.at(1), state)
    mx.reset_peak_memory()
    shard.run_rows([(1, over_the_wire(state))])
    keys_bytes = 4 * 2 * 16 * len(PROMPT) * 8  # of one block
    assert mx.get_peak_memory() - held < keys_bytes
    ring.ring.close()
