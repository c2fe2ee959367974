"""Every architecture on offer: rings of tiny random models are the whole model, bit for bit, and the lists say so."""

from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(
    ("module", "more"),
    [
        ("gemma4", {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "attention_k_eq_v": True}),
        ("gemma4_text", {"hidden_size_per_layer_input": 0, "enable_moe_block": True, "top_k_experts": 2}),
        ("hunyuan", {"use_cla": False}),
        ("llama", {"tie_word_embeddings": True, "layer_types": ["full_attention", "sliding_attention"] * 3}),
        ("qwen3_moe", {"decoder_sparse_step": 2, "mlp_only_layers": [3]}),
        ("cohere2", {"sliding_window_pattern": 3}),
        ("deepseek_v3", {"q_lora_rank": None, "n_group": 2, "topk_group": 1}),
    ],
    ids=str,
)
def test_ring_when_an_architecture_comes_in_another_form_then_the_whole_models_logits(
    module: str, more: dict[str, Any], tmp_path: Path
) -> None:
    assert prove(module, tmp_path / "model", **more).wrong == ()


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
