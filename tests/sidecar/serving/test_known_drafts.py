"""Small models that are suggested for large ones when a session is created."""

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.models.offered import FAMILIES
from kafila_sidecar.serving.drafting.known import GUESSES_FOR, known_draft, notices_of
from kafila_sidecar.weights.providers.hub import REPO
from kafila_sidecar.weights.providers.names import TABLE, known_as


def test_known_drafts_when_read_then_each_is_a_short_name_and_much_smaller_than_those_it_guesses_for() -> None:
    by_name = {model.repo.rpartition("/")[2]: model for model in TABLE}
    for draft, larger in GUESSES_FOR.items():
        small = known_as(draft)
        assert small is not None
        sizes = [by_name[name].weight_bytes for name in larger if name in by_name]
        assert sizes
        assert min(sizes) > 5 * small.weight_bytes
    every = [name for larger in GUESSES_FOR.values() for name in larger]
    assert len(set(every)) == len(every)
    assert all(REPO.fullmatch(f"org/{name}") for name in every)


def test_known_drafts_when_their_caches_are_asked_for_then_they_can_forget() -> None:
    architectures = {"qwen3:0.6b": "qwen3", "qwen2.5:0.5b": "qwen2", "llama3.2:1b": "llama", "smollm2:135m": "llama"}
    assert architectures.keys() == GUESSES_FOR.keys()
    assert {FAMILIES[name].caches for name in architectures.values()} == {("KVCache",)}


@pytest.mark.parametrize(
    ("model", "draft"),
    [
        ("Qwen/Qwen3-32B", "qwen3:0.6b"),
        ("mlx-community/Qwen3-30B-A3B-4bit", "qwen3:0.6b"),
        ("/home/ada/models/Qwen3-8B", "qwen3:0.6b"),
        ("Qwen/Qwen2.5-72B-Instruct", "qwen2.5:0.5b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3.2:1b"),
        ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "smollm2:135m"),
        ("Qwen/Qwen3-0.6B", None),
        ("google/gemma-3-1b-it", None),
        ("somebody/Qwen3-8B-of-another-kind", None),
        ("", None),
    ],
)
def test_draft_when_asked_for_a_model_then_the_familys_small_one_or_none(model: str, draft: str | None) -> None:
    known = known_draft(model)
    assert (known.name if known else None) == draft


def test_notice_when_a_draft_is_known_then_it_is_offered_in_words_and_only_where_none_is_named() -> None:
    model = "Qwen/Qwen3-32B"
    [notice] = notices_of(pb.CreateSessionRequest(model=model), model)
    assert notice.startswith("with `--draft qwen3:0.6b` answers may come quicker")
    assert "1.5 GB more" in notice
    for request in (
        pb.CreateSessionRequest(model=model, draft="Qwen/Qwen3-1.7B"),
        pb.CreateSessionRequest(model=model, no_guesses=True),
    ):
        assert notices_of(request, model) == []
    assert notices_of(pb.CreateSessionRequest(model="some/model"), "some/model") == []
