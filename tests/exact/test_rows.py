"""Several sequences in one run of each stage: every row is what it is alone."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from kafila_sidecar.errors import InvalidInput, NotFound
from kafila_sidecar.runtime.shard.shard import Shard
from tests.exact.proof import run_of_rows
from tests.exact.shards import RingOfShards
from tests.exact.test_tiny import CUTS, PROMPT, SLIDING
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx

LENGTHS = [21, 3, 40, 9, 17, 30, 5, 12]
FORMS: dict[str, dict[str, Any]] = {
    "f32": {},
    "bf16": {"dtype": "bf16"},
    "4 bits": {"dtype": "bf16", "bits": 4},
    "sliding": {"config": SLIDING},
    "qwen3": {"model_type": "qwen3"},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


def begun(ring: RingOfShards, rows: int) -> list[Shard]:
    """`rows` sequences with prompts of different lengths."""
    for sequence in range(rows):
        ring.step(sequence, PROMPT[: LENGTHS[sequence]])
    return ring.shards


@pytest.mark.parametrize("cuts", [CUTS[1], CUTS[3], CUTS[6]], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_run_when_of_one_to_eight_rows_then_each_is_what_it_is_alone(
    folders: Path, form: str, cuts: tuple[int, ...]
) -> None:
    given = FORMS[form]
    folder = tiny_folder(folders / form, **given)
    alone, several = RingOfShards(folder, cuts), RingOfShards(folder, cuts)
    for ring in (alone, several):
        begun(ring, 8)
    bound = 0.0 if "dtype" in given else 1e-5
    for count in (8, 5, 2, 1, 3):
        run = [(count + 3 * row) % 8 for row in range(count)]
        run = list(dict.fromkeys(run))
        rows = run_of_rows(several.shards, run, [[7 + sequence] for sequence in run])
        for row, sequence in zip(rows, run, strict=True):
            own = alone.step(sequence, [7 + sequence])
            assert float(mx.abs(row - own).max()) <= bound * float(mx.abs(own).max())
    alone.close()
    several.close()


def test_run_when_a_row_is_of_no_sequence_then_nothing_of_the_others_has_moved(folders: Path) -> None:
    ring = RingOfShards(tiny_folder(folders / "f32"), CUTS[1])
    head, last = begun(ring, 2)
    states = head.embed_rows([(0, [5]), (1, [6])])
    before = [last.position(0), last.position(1)]
    with pytest.raises(NotFound):
        last.run_rows([(0, states[0]), (9, states[1])])
    assert [last.position(0), last.position(1)] == before
    assert last.run_rows([(0, states[0]), (1, states[1])])
    ring.close()


def test_run_when_rows_have_unequally_many_tokens_then_it_is_refused(folders: Path) -> None:
    ring = RingOfShards(tiny_folder(folders / "f32"), CUTS[1])
    head, _ = begun(ring, 2)
    with pytest.raises(InvalidInput, match="equally many"):
        head.embed_rows([(0, [5]), (1, [6, 7])])
    ring.close()
