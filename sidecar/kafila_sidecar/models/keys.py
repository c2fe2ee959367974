"""Keys of configurations beside those that an architecture's code reads: which of them change no number.

A configuration's keys are a closed set. A key is read by the architecture's own code (`read_keys`), or it stands here
as harmless, or here with the values at which that code does what the key says; else the checkpoint is refused.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kafila_sidecar.errors import Refused

HARMLESS = frozenset(
    {
        # what the checkpoint is, and with what it was made
        *(
            "architectures",
            "model_type",
            "_name_or_path",
            "name_or_path",
            "transformers_version",
            "torch_dtype",
            "dtype",
        ),
        *(
            "auto_map",
            "version",
            "model_name",
            "_commit_hash",
            "_attn_implementation_autoset",
            "_experts_implementation",
        ),
        *("attn_implementation", "_attn_implementation", "use_flash_attn", "use_flash_attention", "flash_attn"),
        *("unsloth_version", "unsloth_fixed", "quantization", "quantization_config", "finetuning_task", "problem_type"),
        *(
            "mlx_version",
            "tokenizer_class",
            "processor_class",
            "language",
            "license",
            "base_model",
            "pretrained_config",
        ),
        # tokens: ends and beginnings are the tokenizer's business
        *("pretraining_tp", "num_mtp_modules"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id", "cls_token_id"),
        *("unk_token_id", "im_start_token_id", "im_end_token_id", "eod_token_id", "eoh_token_id", "mask_token_id"),
        *("forced_bos_token_id", "forced_eos_token_id", "bos_token", "eos_token", "pad_token", "begin_suppress_tokens"),
        *("suppress_tokens", "bad_words_ids", "prefix", "text_start_id", "text_end_id", "text_token_id"),
        # training
        *("initializer_range", "attention_dropout", "hidden_dropout", "hidden_dropout_prob", "resid_pdrop"),
        *("embd_pdrop", "attn_pdrop", "embd_dropout", "resid_dropout", "attention_probs_dropout_prob", "mlp_dropout"),
        *(
            "embedding_dropout",
            "classifier_dropout",
            "summary_first_dropout",
            "dropout",
            "residual_dropout",
            "ffn_dropout",
        ),
        *("router_aux_loss_coef", "output_router_logits", "aux_loss_alpha", "seq_aux", "router_jitter_noise"),
        *("router_z_loss_coef", "input_jitter_noise", "moe_aux_loss_coeff", "aux_loss_coef", "router_dtype"),
        *("label2id", "id2label", "num_labels", "pruned_heads", "gradient_checkpointing", "use_reentrant"),
        *("load_balance_coeff", "router_aux_loss", "loop_loss_weights", "initializer_factor", "initializer_range_rms"),
        *("rescale_prenorm_residual", "summary_activation", "summary_proj_to_labels", "summary_type", "scale_fmt"),
        *(
            "summary_use_proj",
            "moe_dropout",
            "ep_size",
            "mtp_loss_scaling_factor",
            "moe_router_dtype",
            "embd_layer_norm",
        ),
        *("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"),
        *("mtp_transformer_layers", "mtp_num_layers", "use_mtp", "num_nextn_predict_layer", "mtp_layer_type"),
        # generation, and shapes of what a call returns
        *("use_cache", "output_attentions", "output_hidden_states", "return_dict", "return_dict_in_generate", "top_k"),
        *("do_sample", "early_stopping", "length_penalty", "max_length", "min_length", "max_new_tokens", "num_beams"),
        *("num_beam_groups", "num_return_sequences", "diversity_penalty", "no_repeat_ngram_size", "output_scores"),
        *("encoder_no_repeat_ngram_size", "repetition_penalty", "temperature", "top_p", "typical_p", "torchscript"),
        *("remove_invalid_values", "exponential_decay_length_penalty", "task_specific_params", "tf_legacy_loss"),
        *("use_bfloat16", "chunk_size_feed_forward", "bf16", "fp16", "fp32", "onnx_safe", "generation_config"),
        *("cache_implementation", "keys_to_ignore_at_inference", "num_logits_to_keep", "use_cache_quantization"),
        *("use_cache_kernel", "use_fast_conv", "use_mamba_kernels", "is_encoder_decoder_cache", "softmax_in_fp32"),
        *("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "use_dynamic_ntk", "use_logn_attn"),
        # lengths: what a model was made for, not what it computes
        *("max_position_embeddings", "seq_length", "model_max_length", "max_seq_len", "max_sequence_length"),
        *("max_seq_length", "n_positions", "n_ctx", "max_model_len", "training_sequence_length", "original_max_len"),
        *("initial_context_length", "max_window_layers", "kv_cache_dim", "padded_vocab_size", "vocab_size_multiple"),
        # shapes of single parts, which the tensors themselves show
        *("attention_bias", "mlp_bias", "use_bias", "bias", "qkv_bias", "attention_out_bias", "attention_qkv_bias"),
        *("add_qkv_bias", "add_bias_linear", "add_faster_video", "o_bias", "use_qkv_bias", "proj_bias", "no_bias"),
        *("num_query_groups", "multi_query_group_num", "kv_channels", "projection_dim", "moe_layer_start_index"),
        *("moe_shared_expert_intermediate_size", "qk_head_dim", "mamba_chunk_size", "chunk_size", "conv_dim"),
        *("conv_dim_out", "conv_use_xavier_init", "block_use_swiglu", "block_use_xavier_init", "block_mlp_init_scale"),
        *("block_out_init_scale", "block_norm_eps_init", "use_pos_enc", "vocab_size_per_layer_input"),
    }
)
"""Keys that change no logit."""

OUTER_HARMLESS = frozenset(
    {
        *(
            "vision_config",
            "audio_config",
            "image_token_id",
            "image_token_index",
            "video_token_id",
            "video_token_index",
        ),
        *("vision_start_token_id", "vision_end_token_id", "vision_token_id", "boi_token_id", "eoi_token_id"),
        *("boi_token_index", "eoi_token_index", "mm_tokens_per_image", "projector_hidden_act", "spatial_merge_size"),
        *("vision_feature_layer", "vision_feature_select_strategy", "multimodal_projector_bias", "image_seq_length"),
        *("audio_token_id", "boa_token_id", "eoa_token_id", "eoa_token_index", "vision_soft_tokens_per_image"),
        *("audio_soft_tokens_per_image", "media_placeholder_token_id", "use_unified_vision_chunk", "ignore_index"),
        *(
            "video_placeholder",
            "projector_bias",
            "projector_hidden_size",
            "projector_use_layernorm",
            "downsample_factor",
        ),
        *("do_image_splitting", "encoder_patch_size", "max_image_tokens", "min_image_tokens", "max_num_patches"),
        *("max_pixels_tolerance", "max_tiles", "min_tiles", "tile_size", "use_image_special_tokens", "use_thumbnail"),
        *("use_thumbnail", "media_placeholder_token", "image_grid_pinpoints", "text_config", "vision_soft_tokens"),
        *("img_token_compression_config", "image_seq_len", "projector_config", "process_image_mode", "boa_token_index"),
    }
)
"""Keys beside `text_config` that are about pictures and sound."""

GELUS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_approx")
SILUS = ("silu", "swish", "swiglu")
ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "gemma3", "gemma3n", "gemma4", "gemma4_text"), GELUS),
    **dict.fromkeys(("gpt2", "gpt_bigcode", "gpt_neox", "gptj", "phi", "phixtral", "recurrent_gemma"), GELUS),
    **dict.fromkeys(("starcoder2", "spark2_5"), GELUS),
    **dict.fromkeys(("nanochat", "nemotron_h"), ("relu2", "silu")),
    **{"rwkv7": ("sqrelu", "relu2"), "apertus": ("xielu",), "nemotron": ("relu2",), "youtu_llm": SILUS},
}
ACTIVATION_KEYS = frozenset({"hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act", "activation"})

Fits = Callable[[Any, Mapping[str, Any]], bool]


def _is(*values: Any) -> Fits:
    return lambda value, config: any(value == one and type(value) is type(one) for one in values)


def _as(*keys: str) -> Fits:
    """As many as another key says."""
    return lambda value, config: any(value == config.get(key) for key in keys)


def _all(wanted: Any) -> Fits:
    return lambda value, config: isinstance(value, list) and all(one == wanted for one in value)


def _head_dim(value: Any, config: Mapping[str, Any]) -> bool:
    width, heads = config.get("hidden_size"), config.get("num_attention_heads")
    return isinstance(width, int) and isinstance(heads, int) and heads > 0 and value == width // heads


FITTING: Mapping[str, Fits] = {
    **{key: _is(False) for key in ("is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder", "alibi")},
    **{key: _is(False) for key in ("use_sliding_window", "cross_attention_hidden_size", "use_embedding_norm")},
    **{key: _is(False) for key in ("residual_post_layernorm", "apply_residual_connection_post_layernorm")},
    **{"is_decoder": _is(True, False), "position_embedding_type": _is("rope", "rotary")},
    **{"num_key_value_heads": _as("num_attention_heads"), "head_dim": _head_dim, "rotary_pct": _is(1.0, 1)},
    **{"partial_rotary_factor": _is(1.0, 1), "rope_traditional": _is(False), "rope_interleaved": _is(False)},
    **{"attn_logit_softcapping": _is(0, 0.0), "final_logit_softcapping": _is(0, 0.0), "mlp_type": _is("default")},
    **{"norm_type": _is("rms_norm", "rmsnorm"), "use_rmsnorm": _is(True), "add_rmsnorm_bias": _is(False)},
    **{"use_cla": _is(False), "use_parallel_residual": _is(False), "interleaved_sliding_window": _is(False)},
    **{
        "reorder_and_upcast_attn": _is(False),
        "scale_attn_by_inverse_layer_idx": _is(False),
        "scale_attn_weights": _is(True),
    },
    **{"attention_chunk_size": _is(False), "quantize_activations": _is(False)},
    **{"use_bidirectional_attention": _is(False), "tie_word_embeddings": _is(True, False), "is_causal": _is(True)},
}
"""Keys that some architectures' code doesn't read, with what it takes for granted instead."""

FITTING_OF: Mapping[str, Mapping[str, Fits]] = {
    "gpt_oss": {"swiglu_limit": _is(7.0), "experts_per_token": _as("num_experts_per_tok")},
    "deepseek_v2": {"scoring_func": _is("softmax"), "norm_topk_prob": _is(False)},
    "deepseek_v3": {"scoring_func": _is("sigmoid"), "topk_method": _is("noaux_tc")},
    "phi3": {"full_attn_mod": _is(1), "interpolate_factor": _is(1), "lm_head_bias": _is(False)},
    "minimax": {
        **{"scoring_func": _is("sigmoid"), "use_routing_bias": _is(True), "qk_norm_type": _is("per_layer")},
        **{"attn_type_list": _all(1), "shared_moe_mode": _is("sigmoid"), "layernorm_full_attention_beta": _is(1.0, 1)},
        **{"layernorm_full_attention_alpha": _is(1.0, 1), "layernorm_mlp_alpha": _is(1.0, 1)},
        **{"layernorm_mlp_beta": _is(1.0, 1), "postnorm": _is(False), "shared_intermediate_size": _is(0)},
    },
    "cohere2": {
        **{"use_gated_activation": _is(True), "use_parallel_block": _is(True), "use_parallel_embedding": _is(True)},
        **{"use_embedding_sharing": _is(True), "order_of_interleaved_layers": _is("local_attn_first")},
        **{"position_embedding_type": _is("rope_gptj"), "layer_switch": _as("sliding_window_pattern")},
    },
    "apertus": {"post_norm": _is(False), "qk_norm": _is(True)},
    "lfm2": {"block_norm_eps": _as("norm_eps"), "num_heads": _as("num_attention_heads")},
}
"""The same, for single modules."""

CAPS = frozenset({"sliding_window"})
"""Windows that an architecture's code doesn't have: right up to that many tokens."""


def check_keys(config: Mapping[str, Any], read: frozenset[str], module: str, where: str) -> int | None:
    """Checks one level of a configuration. Returns how many tokens its numbers are right for, None for any number.

    read: the keys that the architecture's code reads. where: for people.

    Raises: Refused, naming the key.
    """
    most: int | None = None
    for key, value in config.items():
        if key in read or key in HARMLESS or value is None or _is_activation(key, value, module):
            continue
        fits = FITTING_OF.get(module, {}).get(key) or FITTING.get(key)
        if fits is not None and fits(value, config):
            continue
        if key in CAPS and type(value) is int and value > 0:
            if config.get("use_sliding_window") is not False:
                most = min(value, most or value)
            continue
        raise Refused(
            f"{where} says {key} = {_short(value)}, which mlx-lm's code for {module} doesn't read: its answers might "
            "be wrong without a sign, so choose another copy of the model"
        )
    return most


def _is_activation(key: str, value: Any, module: str) -> bool:
    return key in ACTIVATION_KEYS and value in ACTIVATIONS.get(module, SILUS)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
