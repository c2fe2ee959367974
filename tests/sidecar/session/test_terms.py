"""What a session may be opened with."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.session.terms import check_terms, make_terms, planning_terms

CHECKPOINT: Any = SimpleNamespace(
    description=None,
    config={"max_position_embeddings": 1000, "hidden_size": 8, "intermediate_size": 16, "vocab_size": 100,
            "num_attention_heads": 2},
    revision="r1",
    manifest=SimpleNamespace(tensors={"a": 1}),
    shard_bytes=lambda names: 4711,
    sizes={"blocks": 3},
    activation_dtype="F32",
    anatomy=SimpleNamespace(most_tokens=None),
    unpacked_block_bytes=0,
)  # fmt: skip


def asked(**fields: Any) -> pb.CreateSessionRequest:
    return pb.CreateSessionRequest(**{"model": "org/name", **fields})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"model": ""}, "no model"),
        ({"members": 65}, "65 members"),
        ({"concurrency": 257}, "257"),
        ({"strategy": "magic"}, "magic"),
        ({"objective": "fun"}, "fun"),
        ({"context_tokens": 3}, "3 tokens"),
        ({"replanning": "daily"}, "one of ask, auto, never, not for 'daily'"),
        ({"quantize_bits": 5}, "5 bits while loading: choose 4 or 8"),
        ({"draft": "org/small", "no_guesses": True}, "without guesses has no use"),
    ],
)
def test_check_when_it_makes_no_sense_then_one_sentence_names_it(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        check_terms(asked(**fields), 64)


def test_terms_when_nothing_is_said_then_defaults_within_the_models_own() -> None:
    check_terms(asked(), 64)
    terms = make_terms(asked(), CHECKPOINT, rendezvous_at_host=True)
    assert (terms.context_tokens, terms.concurrency, terms.strategy, terms.members_wanted) == (1000, 1, "kafila", 0)
    assert (terms.revision, terms.weight_bytes, terms.rendezvous_at_host) == ("r1", 4711, True)


BLOCK = SimpleNamespace(held_bytes=100, kv_bytes_per_token=2, kv_fixed_bytes=5)
ANATOMY = SimpleNamespace(blocks=(BLOCK, BLOCK), embed_bytes=70, unembed_bytes=70, norm_bytes=1, tied=True)
SMALL: Any = SimpleNamespace(revision="r2", anatomy=ANATOMY)


def test_terms_when_a_draft_model_is_named_then_its_weights_and_caches_are_kept_free_on_the_head() -> None:
    request = asked(draft="org/small", context_tokens=10, concurrency=3)
    terms = make_terms(request, CHECKPOINT, rendezvous_at_host=True, draft=SMALL)
    assert (terms.draft, terms.draft_revision) == ("org/small", "r2")
    assert terms.draft_bytes == 70 + 1 + 2 * (100 + 3 * (10 * 2 + 5))
    assert planning_terms(terms, CHECKPOINT).model == {"blocks": 3, "draft_bytes": terms.draft_bytes}
    plain = make_terms(asked(), CHECKPOINT, rendezvous_at_host=True)
    assert planning_terms(plain, CHECKPOINT).model == {"blocks": 3}


def test_terms_when_the_context_is_more_than_the_models_then_refused() -> None:
    with pytest.raises(InvalidInput, match="own 1000"):
        make_terms(asked(context_tokens=1001), CHECKPOINT, rendezvous_at_host=False)


@pytest.mark.parametrize("own", ["many", [1], -5, None])
def test_terms_when_the_checkpoint_says_nonsense_then_the_default_or_a_refusal(own: Any) -> None:
    hostile = SimpleNamespace(**{**vars(CHECKPOINT), "config": {**CHECKPOINT.config, "max_position_embeddings": own}})
    terms = make_terms(asked(), cast(Any, hostile), rendezvous_at_host=False)
    assert terms.context_tokens == 4096


def test_planning_terms_when_made_from_the_log_then_the_same_for_every_member() -> None:
    terms = make_terms(asked(require=["all"], exclude=["eve"]), CHECKPOINT, rendezvous_at_host=False)
    made = planning_terms(terms, CHECKPOINT)
    assert (made.model, made.context_tokens, made.require, made.exclude) == ({"blocks": 3}, 1000, ("all",), ("eve",))
    assert made.extra["prefill_peak_bytes"] > 0


@pytest.mark.parametrize("bits", [0, 4, 8])
def test_terms_when_members_shall_quantise_then_they_say_so_and_the_files_bytes_stay(bits: int) -> None:
    check_terms(asked(quantize_bits=bits), 64)
    terms = make_terms(asked(quantize_bits=bits), CHECKPOINT, rendezvous_at_host=False)
    assert (terms.quantize_bits, terms.weight_bytes) == (bits, 4711)


def test_planning_terms_when_blocks_are_packed_while_loading_then_there_is_room_for_one_unpacked() -> None:
    terms = make_terms(asked(quantize_bits=4), CHECKPOINT, rendezvous_at_host=False)
    packing = SimpleNamespace(**{**vars(CHECKPOINT), "unpacked_block_bytes": 10**12})
    assert planning_terms(terms, cast(Any, packing)).extra["prefill_peak_bytes"] == 10**12
    assert planning_terms(terms, CHECKPOINT).extra["prefill_peak_bytes"] < 10**12
