"""What a stage takes beside weights and caches."""

import pytest

from kafila_sidecar.runtime.footprint import PREFILL_CHUNK_TOKENS, prefill_peak_bytes, slices_bytes

SMOLLM2 = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9}


def test_prefill_peak_when_counted_for_smollm2_then_it_covers_what_was_measured() -> None:
    for context_tokens, measured in ((512, 28 << 20), (1024, 40 << 20)):
        counted = prefill_peak_bytes(SMOLLM2, context_tokens=context_tokens, item_bytes=4)
        assert 0.85 * measured < counted < 1.5 * measured


@pytest.mark.parametrize(("chosen", "measured"), [(4, 67 << 20), (8, 102 << 20)])
def test_prefill_peak_when_tokens_choose_experts_then_it_covers_what_was_measured(chosen: int, measured: int) -> None:
    config = {"hidden_size": 1024, "intermediate_size": 3072, "moe_intermediate_size": 768, "num_attention_heads": 16}
    counted = prefill_peak_bytes(config | {"num_experts_per_tok": chosen}, context_tokens=512, item_bytes=4)
    assert 0.85 * measured < counted < 1.5 * measured


@pytest.mark.parametrize("name", sorted(SMOLLM2))
def test_prefill_peak_when_the_model_is_larger_then_it_is_higher(name: str) -> None:
    larger = SMOLLM2 | {name: 2 * SMOLLM2[name]}
    peaks = [prefill_peak_bytes(config, context_tokens=2048, item_bytes=2) for config in (SMOLLM2, larger)]
    assert peaks[0] < peaks[1]


def test_prefill_peak_when_16_bits_go_through_f32_then_a_blocks_keys_and_values_have_room() -> None:
    config = SMOLLM2 | {"num_key_value_heads": 3, "head_dim": 64}
    peaks = [prefill_peak_bytes(config, context_tokens=32768, item_bytes=size) for size in (2, 4)]
    temporaries = 512 * (8 * 576 + 3 * 1536)
    assert peaks[0] - peaks[1] == 2 * 32768 * 3 * 64 * 4 - 2 * temporaries


@pytest.mark.parametrize("said", ["quantization", "quantization_config"])
def test_prefill_peak_when_weights_are_packed_then_a_matrix_in_f32_has_room_whatever_the_activations(said: str) -> None:
    packed, plain = (
        prefill_peak_bytes(config, context_tokens=512, item_bytes=4)
        for config in (SMOLLM2 | {said: {"bits": 4}}, SMOLLM2)
    )
    assert packed - plain == slices_bytes(576 * 1536) > 4 * 576 * 1536


def test_prefill_peak_when_the_context_is_shorter_than_a_chunk_then_it_counts_the_context() -> None:
    short = prefill_peak_bytes(SMOLLM2, context_tokens=64, item_bytes=4)
    assert short < prefill_peak_bytes(SMOLLM2, context_tokens=PREFILL_CHUNK_TOKENS, item_bytes=4) / 4
