"""Tiny configurations of every architecture, made from its own ModelArgs."""

import dataclasses
import importlib
from typing import Any

from tests.exact.special import NESTED, SPECIAL

VOCAB = 96
BLOCKS = 6

SMALL: dict[str, Any] = {
    **{"vocab_size": VOCAB, "hidden_size": 64, "num_hidden_layers": BLOCKS, "num_attention_heads": 4},
    **{"intermediate_size": 96, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5, "rope_theta": 10000.0},
    **{"max_position_embeddings": 512, "attention_bias": False, "tie_word_embeddings": False, "mlp_bias": False},
    **{"num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True, "routed_scaling_factor": 1.5},
    **{"sliding_window": 8, "num_experts": 4, "topk_group": 1, "n_group": 1, "first_k_dense_replace": 1},
    **{"n_routed_experts": 4, "n_shared_experts": 1, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16},
    **{"kv_lora_rank": 16, "q_lora_rank": 24, "use_qk_norm": True, "layer_norm_epsilon": 1e-5, "use_bias": True},
    **{"moe_layer_freq": 1, "num_shared_experts": 1, "num_local_experts": 4, "layer_norm_eps": 1e-5},
    **{"num_layers": BLOCKS, "n_layer": BLOCKS, "n_layers": BLOCKS, "num_transformer_layers": BLOCKS},
    **{"moe_shared_expert_intermediate_size": 32, "shared_expert_intermediate_size": 32, "n_embd": 64, "n_head": 4},
    **{
        "sliding_window_pattern": 2,
        "use_qkv_bias": True,
        "rotary_dim": 8,
        "embedding_multiplier": 1.5,
        "norm_eps": 1e-5,
    },
    **{
        "mamba_d_conv": 4,
        "mamba_d_state": 16,
        "mamba_proj_bias": False,
        "mamba_conv_bias": True,
        "mlp_only_layers": [],
    },
    **{"decoder_sparse_step": 1, "num_heads": 4, "layer_group_size": 3, "num_nextn_predict_layers": 0},
    **{"index_head_dim": 16, "index_n_heads": 2, "index_topk": 8, "query_pre_attn_scalar": 16, "conv_L_cache": 3},
    **{"n_positions": 512, "logits_scaling": 2.0, "attention_multiplier": 0.25, "residual_multiplier": 0.5},
    **{"moe_topk": 2, "conv_kernel": 4, "use_conv_bias": True, "num_kv_heads": 2, "num_dense_layers": 1},
    **{"group_norm_size": 2, "mamba_d_head": 16, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 8},
    **{"shared_intermediate_size": 32, "conv_bias": True, "ffn_hidden_size": 96, "expert_ffn_hidden_size": 32},
    **{"zero_expert_num": 2, "zero_expert_type": "identity", "mla_scale_q_lora": True, "mla_scale_kv_lora": True},
    **{"state_size": 16, "time_step_rank": 8, "n_groups": 1, "ssm_state_size": 16, "dim_model_base": 32},
    **{"scale_depth": 1.4, "scale_emb": 2.0, "mamba_num_heads": 4, "linear_num_key_heads": 2, "model_dim": 64},
    **{
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
    },
    **{"attention_window_size": 8, "d_model": 64, "n_heads": 4, "d_state": 16, "moe_num_experts": 4, "moe_k": 2},
    **{"rotary_emb_base": 10000, "rotary_pct": 0.25, "num_global_key_value_heads": 1, "global_head_dim": 16},
    **{"vocab_size_per_layer_input": VOCAB, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 0},
    **{"n_ctx": 512, "n_inner": 96, "attn_layer_offset": 1, "attn_layer_period": 2, "expert_layer_offset": 1},
    **{
        "expert_layer_period": 2,
        "block_size": 512,
        "n_kv_heads": 2,
        "intermediate_size_mlp": 96,
        "moe_layer_start_index": 1,
    },
    **{"swa_rope_theta": 5000.0, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 16},
    **{"swa_v_head_dim": 16, "sliding_window_size": 8, "add_swa_attention_sink_bias": True, "layernorm_epsilon": 1e-5},
    **{"add_full_attention_sink_bias": False, "post_norm": False, "qk_norm": True, "lm_head_multiplier": 0.5},
    **{"conv1d_width": 4, "logits_soft_cap": 30.0, "a_low_rank_dim": 8, "v_low_rank_dim": 8, "gate_low_rank_dim": 8},
    **{
        "decay_low_rank_dim": 8,
        "num_attention_groups": 2,
        "model_max_length": 512,
        "block_dim": 64,
        "use_expert_bias": True,
    },
    **{"block_multiple_of": 8, "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": False, "block_ff_dim": 96},
    **{"num_vocab": VOCAB, "n_shared_head": 2, "hidden_size_per_head": 16, "window_size": 8, "kv_channels": 16},
    **{"time_step_limit": (0.001, 100.0), "use_parallel_residual": True, "moe_top_k": 2, "share_expert_dim": 32},
    **{"mamba_d_ssm": 128, "rope_scaling": None, "original_max_position_embeddings": 512, "moe_layers": None},
    **{"linear_allow_neg_eigval": True, "partial_rotary_factor": 0.5, "num_experts_per_token": 2, "lora_rank": 8},
    **{"is_moe_layer": [False, True] * 3, "num_shared_expert": 1, "use_cla": True, "cla_share_factor": 2},
    **{"use_mixed_mlp_moe": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_latent_size": None},
    **{"moe_num_shared_experts": 1, "use_shortconv": True, "moe_layer_interval": 1, "mlp_hidden_size": 96},
    **{"short_conv_kernel_size": 4, "bias": True, "qkv_bias": True, "head_qk_norm": True, "hidden_act": "silu"},
    **{"use_sliding_window": False, "num_swa_attention_heads": 4, "num_swa_key_value_heads": 2, "conv_window": 2},
    **{"mamba_head_dim": 16, "chunk_size": 16, "attention_chunk_size": 8, "n_mels": 8, "mamba_rms_norm": True},
    **{"attention_method": "MLA", "index_topk_freq": 1, "num_query_heads": None, "first_k_dense": 1},
}


def tiny_config(module: str, **more: Any) -> dict[str, Any]:
    """A configuration for mlx_lm.models.`module`."""
    architecture = importlib.import_module(f"mlx_lm.models.{module}")
    own = {"model_type": module}
    if module in NESTED:
        inner = tiny_config(NESTED[module])
        return own | {"vocab_size": VOCAB, "text_config": inner | SPECIAL.get(module, {}) | more}
    chosen = {
        field.name: SMALL[field.name] for field in dataclasses.fields(architecture.ModelArgs) if field.name in SMALL
    }
    return chosen | own | SPECIAL.get(module, {}) | more
