"""Every architecture on offer: rings of tiny random models are the whole model, bit for bit, and the lists say so."""

from pathlib import Path

import pytest

from kafila_sidecar.models.offered import ALIASES, FAMILIES, SHOWN_WITH
from kafila_sidecar.models.read_keys import READ_KEYS
from tests.exact.candidates import FIRST, REFUSED, TWELVE
from tests.exact.proof import prove
from tests.exact.readers import keys_of
from tests.exact.survey import PAGE, TRIED_WITH, candidates

pytestmark = pytest.mark.mlx


def check(module: str, folder: Path) -> None:
    finding = prove(module, folder / "model")
    assert finding.wrong == ()
    assert finding.family == FAMILIES[module], "run `make models`"
    assert tuple(tuple(part.split()) for part in READ_KEYS[module]) == tuple(map(tuple, keys_of(module)))


@pytest.mark.parametrize("module", TWELVE)
def test_ring_when_of_one_of_each_kind_then_the_whole_models_logits(module: str, tmp_path: Path) -> None:
    check(module, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("module", sorted(set(FAMILIES) - set(TWELVE)))
def test_ring_when_of_any_architecture_then_the_whole_models_logits(module: str, tmp_path: Path) -> None:
    check(module, tmp_path)


def test_allow_list_when_mlx_lm_changes_then_it_says_that_it_is_out_of_date() -> None:
    assert SHOWN_WITH == TRIED_WITH, "run `make models`: another mlx-lm was tried"
    assert set(FAMILIES) | set(REFUSED) == set(candidates()) | set(REFUSED), "run `make models`"
    assert set(FAMILIES) == set(READ_KEYS)


def test_page_when_read_then_it_names_what_is_offered_and_what_is_not() -> None:
    named = {line.split("|")[1].split()[0] for line in PAGE.read_text().splitlines() if line.startswith("| ")}
    assert named - {"name", "file"} == set(FAMILIES) | set(REFUSED)


def test_what_people_run_when_looked_up_then_it_is_offered() -> None:
    assert set(FIRST) <= set(FAMILIES)
    assert ALIASES["mistral"] == "llama"
