"""What single architectures need beside the common tiny shape."""

from typing import Any

NESTED: dict[str, str] = {
    **{"gemma3": "gemma3_text", "gemma4": "gemma4_text", "kimi_k25": "deepseek_v3", "kimi_vl": "deepseek_v3"},
    **{"lfm2-vl": "lfm2", "mistral3": "ministral3", "qwen2_vl": "qwen2", "qwen3_5": "qwen3_next"},
    **{"qwen3_5_moe": "qwen3_next", "qwen3_vl": "qwen3", "qwen3_vl_moe": "qwen3_moe", "pixtral": "llama"},
    **{"minimax_m3_vl": "minimax"},
}
SLIDING = ["sliding_attention", "full_attention"] * 3
FULL_FIRST = ["full_attention", "sliding_attention"] * 3
CONVOLVED = ["conv", "conv", "full_attention"] * 2
LLAMA4_ROPE = {
    **{"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16},
    **{"llama_4_scaling_beta": 0.1, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 0.7, "mscale_all_dim": 0.7}
BY_TYPE = {
    "full_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
}
GEMMA3N: dict[str, Any] = {
    **{"model_type": "gemma3n_text", "hidden_size": 64, "num_hidden_layers": 8, "intermediate_size": [96] * 8},
    **{"num_attention_heads": 4, "head_dim": 16, "rms_norm_eps": 1e-5, "vocab_size": 96, "num_key_value_heads": 2},
    **{"num_kv_shared_layers": 2, "vocab_size_per_layer_input": 90, "sliding_window": 8, "rope_theta": 10000.0},
    **{"max_position_embeddings": 512, "rope_local_base_freq": 5000.0, "final_logit_softcapping": 30.0},
    **{"layer_types": SLIDING + SLIDING[:2], "activation_sparsity_pattern": [0.5, 0.5] + [0.0] * 6},
    **{"hidden_size_per_layer_input": 8, "altup_num_inputs": 3, "altup_coef_clip": 120.0, "altup_active_idx": 0},
    **{"altup_correct_scale": True, "laurel_rank": 8},
}
SPECIAL: dict[str, dict[str, Any]] = {
    "afmoe": {"layer_types": SLIDING},
    "deepseek_v3": {"num_key_value_heads": 4},
    "deepseek_v2": {"num_key_value_heads": 4, "rope_scaling": YARN, "topk_method": "group_limited_greedy"},
    "exaone4": {"sliding_window_pattern": "LG", "rope_scaling": None},
    "exaone_moe": {"layer_types": SLIDING},
    "gemma3n": {"text_config": GEMMA3N},
    "gemma4_text": {"num_hidden_layers": 8, "layer_types": SLIDING + SLIDING[:2], "num_kv_shared_layers": 2},
    "gear": {"layer_types": SLIDING},
    "glm_moe_dsa": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "granitemoehybrid": {"layer_types": ["mamba", "mamba", "attention"] * 2},
    "hunyuan": {"rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "dynamic"}},
    "jamba": {"num_experts": 2},
    "kimi_linear": {
        "linear_attn_config": {
            **{"kda_layers": [1, 2, 4, 5], "full_attn_layers": [3, 6], "num_heads": 4, "head_dim": 16},
            "short_conv_kernel_size": 4,
        },
        "topk_method": "noaux_tc",
    },
    "lfm2": {"layer_types": CONVOLVED},
    "lfm2_moe": {"layer_types": CONVOLVED},
    "llama4": {
        "text_config": {
            **{"attention_bias": False, "attention_chunk_size": 8, "head_dim": 16, "hidden_size": 64},
            **{"interleave_moe_layer_step": 2, "intermediate_size": 32, "intermediate_size_mlp": 96},
            **{"max_position_embeddings": 512, "model_type": "llama4_text", "num_attention_heads": 4},
            **{"num_experts_per_tok": 1, "num_hidden_layers": 8, "num_key_value_heads": 2, "num_local_experts": 4},
            **{"rms_norm_eps": 1e-5, "rope_scaling": None, "rope_theta": 10000.0, "use_qk_norm": True},
            **{"vocab_size": 96},
        }
    },
    "llama4_text": {"no_rope_layers": [1, 1, 1, 0, 1, 1]},
    "mellum": {"layer_types": SLIDING, "rope_parameters": BY_TYPE},
    "mimo_v2_flash": {"hybrid_layer_pattern": [0, 1, 1, 0, 1, 1], "moe_layer_freq": [0, 1, 1, 1, 1, 1]},
    "minicpm3": {"rope_scaling": {"original_max_position_embeddings": 256}},
    "ministral3": {"rope_parameters": LLAMA4_ROPE, "layer_types": FULL_FIRST},
    "mistral4": {"rope_parameters": LLAMA4_ROPE},
    "nemotron-nas": {
        "block_configs": [
            {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 2.625}},
            {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.0}},
            {"attention": {"n_heads_in_group": 4}, "ffn": {"no_op": True}},
            {"attention": {"replace_with_linear": True}, "ffn": {"ffn_mult": 1.0}},
            {"attention": {"n_heads_in_group": 2}, "ffn": {"replace_with_linear": True}},
            {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.0}},
        ]
    },
    "nemotron_h": {"hybrid_override_pattern": list("M-E*M*"), "num_hidden_layers": 6},
    "openelm": {
        "ffn_dim_divisor": 8,
        "ffn_multipliers": [1.0, 1.5, 2.0] * 2,
        "num_query_heads": [4, 4, 8, 4, 4, 8],
        "num_kv_heads": [2, 2, 4, 2, 2, 4],
    },
    "recurrent_gemma": {"block_types": ["recurrent", "recurrent", "attention"]},
    "spark2_5": {"layer_types": SLIDING, "rope_parameters": BY_TYPE, "hidden_act": "gelu"},
    "qwen3_5": {"model_type": "qwen3_5_text"},
    "qwen3_5_moe": {"model_type": "qwen3_5_moe_text"},
    "apertus": {"post_norm": False},
    "baichuan_m1": {"sliding_window_layers": [1, 3]},
}
