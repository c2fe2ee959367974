"""The configuration keys that architectures' code reads: beside `text_config`, and of the text model.

Written by `make models`; what is in neither has to be harmless, or the checkpoint is refused.
"""

from collections.abc import Mapping

READ_KEYS: Mapping[str, tuple[str, str]] = {
    "Klear": (
        (""),
        (
            "attention_bias decoder_sparse_step hidden_size intermediate_size mlp_only_layers "
            "model_type moe_intermediate_size n_shared_experts norm_topk_prob num_attention_heads "
            "num_experts num_experts_per_tok num_hidden_layers num_key_value_heads rms_norm_eps "
            "rope_theta vocab_size"
        ),
    ),
    "afmoe": (
        (""),
        (
            "head_dim hidden_size intermediate_size layer_types max_position_embeddings model_type "
            "moe_intermediate_size mup_enabled n_group num_attention_heads num_dense_layers num_experts "
            "num_experts_per_tok num_hidden_layers num_key_value_heads num_shared_experts rms_norm_eps "
            "rope_scaling rope_theta route_norm route_scale score_func sliding_window "
            "tie_word_embeddings topk_group vocab_size"
        ),
    ),
    "apertus": (
        (""),
        (
            "hidden_size intermediate_size max_position_embeddings mlp_bias model_type "
            "num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps rope_scaling "
            "rope_theta rope_traditional tie_word_embeddings vocab_size"
        ),
    ),
    "baichuan_m1": (
        (""),
        (
            "conv_window hidden_size intermediate_size model_type num_attention_heads num_hidden_layers "
            "num_key_value_heads num_swa_attention_heads num_swa_key_value_heads rms_norm_eps "
            "rope_theta sliding_window sliding_window_layers tie_word_embeddings vocab_size"
        ),
    ),
    "bailing_hybrid": (
        (""),
        (
            "first_k_dense_replace group_norm_size head_dim hidden_size intermediate_size kv_lora_rank "
            "layer_group_size max_position_embeddings model_type moe_intermediate_size "
            "moe_router_enable_expert_bias moe_shared_expert_intermediate_size n_group norm_topk_prob "
            "num_attention_heads num_experts num_experts_per_tok num_hidden_layers num_key_value_heads "
            "num_shared_experts partial_rotary_factor q_lora_rank qk_nope_head_dim qk_rope_head_dim "
            "rms_norm_eps rope_interleave rope_scaling rope_theta routed_scaling_factor score_function "
            "tie_word_embeddings topk_group use_bias use_qk_norm use_qkv_bias v_head_dim vocab_size"
        ),
    ),
    "bailing_moe": (
        (""),
        (
            "first_k_dense_replace hidden_size intermediate_size max_position_embeddings model_type "
            "moe_intermediate_size moe_router_enable_expert_bias moe_router_enable_routed_scaling "
            "moe_router_enable_shared_expert moe_shared_expert_intermediate_size n_group norm_head "
            "norm_topk_prob num_attention_heads num_experts num_experts_per_tok num_hidden_layers "
            "num_key_value_heads num_shared_experts partial_rotary_factor rms_norm_eps rope_scaling "
            "rope_theta rotary_dim routed_scaling_factor score_function tie_word_embeddings topk_group "
            "use_bias use_qk_norm use_qkv_bias vocab_size"
        ),
    ),
    "bailing_moe_linear": (
        (""),
        (
            "first_k_dense_replace group_norm_size head_dim hidden_size intermediate_size "
            "layer_group_size max_position_embeddings model_type moe_intermediate_size "
            "moe_router_enable_expert_bias moe_router_enable_routed_scaling "
            "moe_router_enable_shared_expert moe_shared_expert_intermediate_size n_group norm_head "
            "norm_topk_prob num_attention_heads num_experts num_experts_per_tok num_hidden_layers "
            "num_key_value_heads num_shared_experts partial_rotary_factor rms_norm_eps rope_scaling "
            "rope_theta rope_traditional routed_scaling_factor score_function tie_word_embeddings "
            "topk_group use_bias use_qk_norm use_qkv_bias vocab_size"
        ),
    ),
    "bailing_moe_v3": (
        (""),
        (
            "first_k_dense_replace head_dim hidden_size intermediate_size kda_lower_bound kda_safe_gate "
            "kv_lora_rank layer_group_size max_position_embeddings model_type moe_intermediate_size "
            "moe_shared_expert_intermediate_size n_group no_kda_lora num_attention_heads num_experts "
            "num_experts_per_tok num_hidden_layers num_shared_experts q_lora_rank qk_nope_head_dim "
            "qk_rope_head_dim rms_norm_eps rope_interleave rope_scaling rope_theta "
            "routed_scaling_factor short_conv_kernel_size tie_word_embeddings topk_group v_head_dim "
            "vocab_size"
        ),
    ),
    "cohere": (
        (""),
        (
            "attention_bias hidden_size intermediate_size layer_norm_bias layer_norm_eps logit_scale "
            "model_type num_attention_heads num_hidden_layers num_key_value_heads rope_theta "
            "use_qk_norm vocab_size"
        ),
    ),
    "cohere2": (
        (""),
        (
            "attention_bias head_dim hidden_size intermediate_size layer_norm_bias layer_norm_eps "
            "logit_scale model_type num_attention_heads num_hidden_layers num_key_value_heads "
            "rope_theta sliding_window sliding_window_pattern vocab_size"
        ),
    ),
    "deepseek": (
        (""),
        (
            "attention_bias first_k_dense_replace hidden_size intermediate_size model_type "
            "moe_intermediate_size moe_layer_freq n_routed_experts n_shared_experts num_attention_heads "
            "num_experts_per_tok num_hidden_layers num_key_value_heads rms_norm_eps rope_scaling "
            "rope_theta vocab_size"
        ),
    ),
    "deepseek_v2": (
        (""),
        (
            "attention_bias first_k_dense_replace hidden_size intermediate_size kv_lora_rank "
            "max_position_embeddings model_type moe_intermediate_size moe_layer_freq n_group "
            "n_routed_experts n_shared_experts num_attention_heads num_experts_per_tok "
            "num_hidden_layers q_lora_rank qk_nope_head_dim qk_rope_head_dim rms_norm_eps rope_scaling "
            "rope_theta routed_scaling_factor topk_group topk_method v_head_dim vocab_size"
        ),
    ),
    "deepseek_v3": (
        (""),
        (
            "attention_bias first_k_dense_replace hidden_size intermediate_size kv_lora_rank "
            "max_position_embeddings model_type moe_intermediate_size moe_layer_freq n_group "
            "n_routed_experts n_shared_experts norm_topk_prob num_attention_heads num_experts_per_tok "
            "num_hidden_layers q_lora_rank qk_nope_head_dim qk_rope_head_dim rms_norm_eps rope_scaling "
            "rope_theta routed_scaling_factor topk_group topk_method v_head_dim vocab_size"
        ),
    ),
    "deepseek_v32": (
        (""),
        (
            "attention_bias first_k_dense_replace hidden_size index_head_dim index_n_heads index_topk "
            "indexer_rope_interleave intermediate_size kv_lora_rank max_position_embeddings model_type "
            "moe_intermediate_size moe_layer_freq n_group n_routed_experts n_shared_experts "
            "norm_topk_prob num_attention_heads num_experts_per_tok num_hidden_layers q_lora_rank "
            "qk_nope_head_dim qk_rope_head_dim rms_norm_eps rope_scaling rope_theta "
            "routed_scaling_factor topk_group topk_method v_head_dim vocab_size"
        ),
    ),
    "dots1": (
        (""),
        (
            "first_k_dense_replace head_dim hidden_size intermediate_size max_position_embeddings "
            "mlp_bias model_type moe_intermediate_size n_group n_routed_experts n_shared_experts "
            "norm_topk_prob num_attention_heads num_experts_per_tok num_hidden_layers "
            "num_key_value_heads rms_norm_eps rope_scaling rope_theta routed_scaling_factor "
            "tie_word_embeddings topk_group vocab_size"
        ),
    ),
    "ernie4_5": (
        (""),
        (
            "head_dim hidden_size intermediate_size max_position_embeddings model_type "
            "num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps rope_theta "
            "tie_word_embeddings use_bias vocab_size"
        ),
    ),
    "ernie4_5_moe": (
        (""),
        (
            "head_dim hidden_size intermediate_size max_position_embeddings model_type moe_gate_act "
            "moe_intermediate_size moe_k moe_layer_end_index moe_layer_interval moe_layer_start_index "
            "moe_num_experts moe_num_shared_experts num_attention_heads num_hidden_layers "
            "num_key_value_heads rms_norm_eps rope_theta tie_word_embeddings use_bias vocab_size"
        ),
    ),
    "exaone": (
        (""),
        (
            "attention_bias head_dim hidden_size intermediate_size layer_norm_epsilon "
            "max_position_embeddings mlp_bias model_type num_attention_heads num_key_value_heads "
            "num_layers rope_scaling rope_theta rope_traditional tie_word_embeddings vocab_size"
        ),
    ),
    "exaone4": (
        (""),
        (
            "head_dim hidden_size intermediate_size max_position_embeddings model_type "
            "num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps rope_scaling "
            "rope_theta sliding_window sliding_window_pattern tie_word_embeddings vocab_size"
        ),
    ),
    "exaone_moe": (
        (""),
        (
            "head_dim hidden_size intermediate_size is_moe_layer layer_types max_position_embeddings "
            "model_type moe_intermediate_size n_group norm_topk_prob num_attention_heads num_experts "
            "num_experts_per_tok num_hidden_layers num_key_value_heads num_shared_experts rms_norm_eps "
            "rope_parameters rope_scaling rope_theta routed_scaling_factor sliding_window "
            "tie_word_embeddings topk_group topk_method vocab_size"
        ),
    ),
    "falcon_h1": (
        (""),
        (
            "attention_bias attention_in_multiplier attention_out_multiplier embedding_multiplier "
            "head_dim hidden_size intermediate_size key_multiplier lm_head_multiplier mamba_chunk_size "
            "mamba_conv_bias mamba_d_conv mamba_d_head mamba_d_ssm mamba_d_state mamba_n_groups "
            "mamba_n_heads mamba_norm_before_gate mamba_proj_bias mamba_rms_norm "
            "max_position_embeddings mlp_bias mlp_multipliers model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads projectors_bias rms_norm_eps rope_scaling rope_theta "
            "rope_traditional ssm_in_multiplier ssm_multipliers ssm_out_multiplier tie_word_embeddings "
            "vocab_size"
        ),
    ),
    "gear": (
        (""),
        (
            "attention_bias attn_logit_softcapping conv_L_cache final_logit_softcapping head_dim "
            "hidden_activation hidden_size intermediate_size layer_types max_position_embeddings "
            "model_type num_attention_heads num_hidden_layers num_key_value_heads query_pre_attn_scalar "
            "rms_norm_eps rope_local_base_freq rope_scaling rope_theta sliding_window "
            "tie_word_embeddings use_bidirectional_attention vocab_size"
        ),
    ),
    "gemma": (
        (""),
        (
            "head_dim hidden_size intermediate_size model_type num_attention_heads num_hidden_layers "
            "num_key_value_heads rms_norm_eps rope_theta rope_traditional vocab_size"
        ),
    ),
    "gemma2": (
        (""),
        (
            "attn_logit_softcapping final_logit_softcapping head_dim hidden_size intermediate_size "
            "model_type num_attention_heads num_hidden_layers num_key_value_heads query_pre_attn_scalar "
            "rms_norm_eps rope_theta rope_traditional vocab_size"
        ),
    ),
    "gemma3": (
        ("model_type text_config vocab_size"),
        (
            "head_dim hidden_size intermediate_size max_position_embeddings model_type "
            "num_attention_heads num_hidden_layers num_key_value_heads query_pre_attn_scalar "
            "rms_norm_eps rope_local_base_freq rope_scaling rope_theta sliding_window "
            "sliding_window_pattern vocab_size"
        ),
    ),
    "gemma3_text": (
        (""),
        (
            "head_dim hidden_size intermediate_size max_position_embeddings model_type "
            "num_attention_heads num_hidden_layers num_key_value_heads query_pre_attn_scalar "
            "rms_norm_eps rope_local_base_freq rope_scaling rope_theta sliding_window "
            "sliding_window_pattern vocab_size"
        ),
    ),
    "gemma3n": (
        ("model_type text_config"),
        (
            "activation_sparsity_pattern altup_active_idx altup_coef_clip altup_correct_scale "
            "altup_num_inputs final_logit_softcapping head_dim hidden_size hidden_size_per_layer_input "
            "intermediate_size laurel_rank layer_types model_type num_attention_heads num_hidden_layers "
            "num_key_value_heads num_kv_shared_layers rms_norm_eps rope_local_base_freq rope_theta "
            "sliding_window vocab_size vocab_size_per_layer_input"
        ),
    ),
    "gemma4": (
        ("model_type text_config vocab_size"),
        (
            "attention_k_eq_v enable_moe_block final_logit_softcapping global_head_dim head_dim "
            "hidden_size hidden_size_per_layer_input intermediate_size layer_types "
            "max_position_embeddings model_type moe_intermediate_size num_attention_heads num_experts "
            "num_global_key_value_heads num_hidden_layers num_key_value_heads num_kv_shared_layers "
            "partial_rotary_factor rms_norm_eps rope_parameters rope_traditional sliding_window "
            "sliding_window_pattern tie_word_embeddings top_k_experts use_double_wide_mlp vocab_size "
            "vocab_size_per_layer_input"
        ),
    ),
    "gemma4_text": (
        (""),
        (
            "attention_k_eq_v enable_moe_block final_logit_softcapping global_head_dim head_dim "
            "hidden_size hidden_size_per_layer_input intermediate_size layer_types "
            "max_position_embeddings model_type moe_intermediate_size num_attention_heads num_experts "
            "num_global_key_value_heads num_hidden_layers num_key_value_heads num_kv_shared_layers "
            "partial_rotary_factor rms_norm_eps rope_parameters rope_traditional sliding_window "
            "sliding_window_pattern tie_word_embeddings top_k_experts use_double_wide_mlp vocab_size "
            "vocab_size_per_layer_input"
        ),
    ),
    "glm": (
        (""),
        (
            "attention_bias head_dim hidden_size intermediate_size model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads rms_norm_eps rope_theta tie_word_embeddings "
            "vocab_size"
        ),
    ),
    "glm4": (
        (""),
        (
            "attention_bias head_dim hidden_size intermediate_size model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads partial_rotary_factor rms_norm_eps rope_theta "
            "rope_traditional vocab_size"
        ),
    ),
    "glm4_moe": (
        (""),
        (
            "attention_bias first_k_dense_replace head_dim hidden_size intermediate_size model_type "
            "moe_intermediate_size n_group n_routed_experts n_shared_experts norm_topk_prob "
            "num_attention_heads num_experts_per_tok num_hidden_layers num_key_value_heads "
            "partial_rotary_factor rms_norm_eps rope_theta routed_scaling_factor topk_group topk_method "
            "use_qk_norm vocab_size"
        ),
    ),
    "glm4_moe_lite": (
        (""),
        (
            "attention_bias first_k_dense_replace hidden_size intermediate_size kv_lora_rank "
            "max_position_embeddings model_type moe_intermediate_size moe_layer_freq n_group "
            "n_routed_experts n_shared_experts norm_topk_prob num_attention_heads num_experts_per_tok "
            "num_hidden_layers q_lora_rank qk_nope_head_dim qk_rope_head_dim rms_norm_eps rope_scaling "
            "rope_theta routed_scaling_factor topk_group topk_method v_head_dim vocab_size"
        ),
    ),
    "glm_moe_dsa": (
        (""),
        (
            "attention_bias first_k_dense_replace hidden_size index_head_dim index_n_heads index_topk "
            "indexer_rope_interleave intermediate_size kv_lora_rank max_position_embeddings model_type "
            "moe_intermediate_size moe_layer_freq n_group n_routed_experts n_shared_experts "
            "norm_topk_prob num_attention_heads num_experts_per_tok num_hidden_layers q_lora_rank "
            "qk_nope_head_dim qk_rope_head_dim rms_norm_eps rope_parameters rope_scaling rope_theta "
            "routed_scaling_factor topk_group topk_method v_head_dim vocab_size"
        ),
    ),
    "gpt2": ((""), ("layer_norm_epsilon model_type n_embd n_head n_layer n_positions num_key_value_heads vocab_size")),
    "gpt_bigcode": (
        (""),
        (
            "attention_bias layer_norm_epsilon mlp_bias model_type multi_query n_embd n_head n_inner "
            "n_layer n_positions num_key_value_heads tie_word_embeddings vocab_size"
        ),
    ),
    "gpt_neox": (
        (""),
        (
            "hidden_size layer_norm_eps model_type num_attention_heads num_hidden_layers "
            "num_key_value_heads rotary_emb_base rotary_pct use_parallel_residual vocab_size"
        ),
    ),
    "gpt_oss": (
        (""),
        (
            "head_dim hidden_size intermediate_size layer_types model_type num_attention_heads "
            "num_experts_per_tok num_hidden_layers num_key_value_heads num_local_experts rms_norm_eps "
            "rope_scaling rope_theta sliding_window vocab_size"
        ),
    ),
    "gptj": ((""), ("layer_norm_epsilon model_type n_embd n_head n_layer n_positions rotary_dim vocab_size")),
    "granite": (
        (""),
        (
            "attention_bias attention_multiplier embedding_multiplier hidden_size intermediate_size "
            "logits_scaling max_position_embeddings mlp_bias model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads residual_multiplier rms_norm_eps rope_scaling "
            "rope_theta tie_word_embeddings vocab_size"
        ),
    ),
    "granitemoe": (
        (""),
        (
            "attention_bias attention_multiplier embedding_multiplier hidden_size intermediate_size "
            "logits_scaling max_position_embeddings model_type num_attention_heads num_experts_per_tok "
            "num_hidden_layers num_key_value_heads num_local_experts residual_multiplier rms_norm_eps "
            "rope_scaling rope_theta tie_word_embeddings vocab_size"
        ),
    ),
    "granitemoehybrid": (
        (""),
        (
            "attention_bias attention_multiplier embedding_multiplier hidden_size intermediate_size "
            "layer_types logits_scaling mamba_conv_bias mamba_d_conv mamba_d_head mamba_d_state "
            "mamba_n_groups mamba_n_heads mamba_proj_bias max_position_embeddings mlp_bias model_type "
            "num_attention_heads num_experts_per_tok num_hidden_layers num_key_value_heads "
            "num_local_experts position_embedding_type residual_multiplier rms_norm_eps rope_parameters "
            "rope_theta shared_intermediate_size tie_word_embeddings time_step_limit vocab_size"
        ),
    ),
    "helium": (
        (""),
        (
            "attention_bias hidden_size intermediate_size mlp_bias model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads rms_norm_eps rope_theta tie_word_embeddings "
            "vocab_size"
        ),
    ),
    "hunyuan": (
        (""),
        (
            "attention_bias cla_share_factor hidden_size intermediate_size model_type "
            "moe_intermediate_size moe_topk num_attention_heads num_experts num_hidden_layers "
            "num_key_value_heads num_shared_expert rms_norm_eps rope_scaling rope_theta use_cla "
            "use_mixed_mlp_moe use_qk_norm vocab_size"
        ),
    ),
    "hunyuan_v1_dense": (
        (""),
        (
            "attention_bias head_dim hidden_size intermediate_size model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads rms_norm_eps rope_scaling rope_theta "
            "tie_word_embeddings use_qk_norm vocab_size"
        ),
    ),
    "internlm2": (
        (""),
        (
            "bias hidden_size intermediate_size max_position_embeddings model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads rms_norm_eps rope_scaling rope_theta "
            "rope_traditional tie_word_embeddings vocab_size"
        ),
    ),
    "internlm3": (
        (""),
        (
            "bias hidden_size intermediate_size max_position_embeddings model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads qkv_bias rms_norm_eps rope_scaling rope_theta "
            "rope_traditional tie_word_embeddings vocab_size"
        ),
    ),
    "jamba": (
        (""),
        (
            "attn_layer_offset attn_layer_period expert_layer_offset expert_layer_period hidden_size "
            "intermediate_size layers_block_type mamba_conv_bias mamba_d_conv mamba_d_state "
            "mamba_dt_rank mamba_expand mamba_proj_bias model_type num_attention_heads num_experts "
            "num_experts_per_tok num_hidden_layers num_key_value_heads rms_norm_eps tie_word_embeddings "
            "vocab_size"
        ),
    ),
    "kimi_k25": (
        ("model_type text_config"),
        (
            "attention_bias first_k_dense_replace hidden_size intermediate_size kv_lora_rank "
            "max_position_embeddings model_type moe_intermediate_size moe_layer_freq n_group "
            "n_routed_experts n_shared_experts norm_topk_prob num_attention_heads num_experts_per_tok "
            "num_hidden_layers q_lora_rank qk_nope_head_dim qk_rope_head_dim rms_norm_eps rope_scaling "
            "rope_theta routed_scaling_factor topk_group topk_method v_head_dim vocab_size"
        ),
    ),
    "kimi_linear": (
        (""),
        (
            "first_k_dense_replace head_dim hidden_size intermediate_size kv_lora_rank "
            "linear_attn_config model_type moe_intermediate_size moe_layer_freq moe_renormalize "
            "moe_router_activation_func num_attention_heads num_expert_group num_experts "
            "num_experts_per_token num_hidden_layers num_key_value_heads num_shared_experts "
            "qk_nope_head_dim qk_rope_head_dim rms_norm_eps routed_scaling_factor tie_word_embeddings "
            "topk_group v_head_dim vocab_size"
        ),
    ),
    "kimi_vl": (
        ("model_type text_config"),
        (
            "attention_bias first_k_dense_replace hidden_size intermediate_size kv_lora_rank "
            "max_position_embeddings moe_intermediate_size moe_layer_freq n_group n_routed_experts "
            "n_shared_experts norm_topk_prob num_attention_heads num_experts_per_tok num_hidden_layers "
            "q_lora_rank qk_nope_head_dim qk_rope_head_dim rms_norm_eps rope_scaling rope_theta "
            "routed_scaling_factor topk_group topk_method v_head_dim vocab_size"
        ),
    ),
    "laguna": (
        (""),
        (
            "attention_bias gating head_dim hidden_size intermediate_size layer_types "
            "max_position_embeddings mlp_layer_types model_type moe_intermediate_size "
            "moe_routed_scaling_factor moe_router_logit_softcapping moe_router_score_func "
            "num_attention_heads num_attention_heads_per_layer num_experts num_experts_per_tok "
            "num_hidden_layers num_key_value_heads partial_rotary_factor qkv_bias rms_norm_eps "
            "rope_parameters shared_expert_intermediate_size sliding_window tie_word_embeddings "
            "vocab_size"
        ),
    ),
    "lfm2": (
        (""),
        (
            "block_auto_adjust_ff_dim block_dim block_ff_dim block_ffn_dim_multiplier block_multiple_of "
            "conv_L_cache conv_bias full_attn_idxs hidden_size intermediate_size layer_types model_type "
            "norm_eps num_attention_heads num_hidden_layers num_key_value_heads rope_parameters "
            "rope_theta vocab_size"
        ),
    ),
    "lfm2-vl": (
        ("model_type text_config"),
        (
            "block_auto_adjust_ff_dim block_dim block_ff_dim block_ffn_dim_multiplier block_multiple_of "
            "conv_L_cache conv_bias full_attn_idxs hidden_size intermediate_size layer_types model_type "
            "norm_eps num_attention_heads num_hidden_layers num_key_value_heads rope_parameters "
            "rope_theta vocab_size"
        ),
    ),
    "lfm2_moe": (
        (""),
        (
            "conv_L_cache conv_bias full_attn_idxs hidden_size intermediate_size layer_types model_type "
            "moe_intermediate_size norm_eps norm_topk_prob num_attention_heads num_dense_layers "
            "num_experts num_experts_per_tok num_hidden_layers num_key_value_heads rope_parameters "
            "rope_theta routed_scaling_factor use_expert_bias vocab_size"
        ),
    ),
    "lille-130m": ((""), ("layer_norm_eps model_type n_embd n_head n_kv_heads n_layer rope_theta vocab_size")),
    "llama": (
        (""),
        (
            "attention_bias head_dim hidden_size intermediate_size layer_types max_position_embeddings "
            "mlp_bias model_type num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps "
            "rope_scaling rope_theta rope_traditional sliding_window tie_word_embeddings vocab_size"
        ),
    ),
    "llama4": (
        ("model_type text_config"),
        (
            "attention_bias attention_chunk_size attn_scale attn_temperature_tuning floor_scale "
            "head_dim hidden_size interleave_moe_layer_step intermediate_size intermediate_size_mlp "
            "max_position_embeddings model_type num_attention_heads num_experts_per_tok "
            "num_hidden_layers num_key_value_heads num_local_experts rms_norm_eps rope_scaling "
            "rope_theta use_qk_norm vocab_size"
        ),
    ),
    "llama4_text": (
        (""),
        (
            "head_dim hidden_size intermediate_size_mlp model_type no_rope_layers num_attention_heads "
            "num_hidden_layers num_key_value_heads rms_norm_eps rope_theta tie_word_embeddings "
            "use_qk_norm vocab_size"
        ),
    ),
    "longcat_flash": (
        (""),
        (
            "attention_bias expert_ffn_hidden_size ffn_hidden_size hidden_size kv_lora_rank "
            "max_position_embeddings mla_scale_kv_lora mla_scale_q_lora model_type moe_topk "
            "n_routed_experts norm_topk_prob num_attention_heads num_layers q_lora_rank "
            "qk_nope_head_dim qk_rope_head_dim rms_norm_eps rope_scaling rope_theta "
            "routed_scaling_factor router_bias v_head_dim vocab_size zero_expert_num zero_expert_type"
        ),
    ),
    "longcat_flash_ngram": (
        (""),
        (
            "attention_bias emb_neighbor_num emb_split_num expert_ffn_hidden_size ffn_hidden_size "
            "hidden_size kv_lora_rank max_position_embeddings mla_scale_kv_lora mla_scale_q_lora "
            "model_type moe_topk n_routed_experts ngram_vocab_size_ratio norm_topk_prob "
            "num_attention_heads num_layers q_lora_rank qk_nope_head_dim qk_rope_head_dim rms_norm_eps "
            "rope_scaling rope_theta routed_scaling_factor router_bias v_head_dim vocab_size "
            "zero_expert_num zero_expert_type"
        ),
    ),
    "mamba": (
        (""),
        (
            "conv_kernel hidden_size intermediate_size mixer_rms_eps model_type num_hidden_layers "
            "state_size tie_word_embeddings time_step_rank use_bcdt_rms use_bias use_conv_bias "
            "vocab_size"
        ),
    ),
    "mamba2": (
        (""),
        (
            "conv_kernel head_dim hidden_size intermediate_size layer_norm_epsilon model_type n_groups "
            "num_heads num_hidden_layers ssm_state_size state_size tie_word_embeddings time_step_limit "
            "time_step_rank use_bias use_conv_bias vocab_size"
        ),
    ),
    "mellum": (
        (""),
        (
            "head_dim hidden_size layer_types max_position_embeddings model_type moe_intermediate_size "
            "norm_topk_prob num_attention_heads num_experts num_experts_per_tok num_hidden_layers "
            "num_key_value_heads rms_norm_eps rope_parameters sliding_window tie_word_embeddings "
            "vocab_size"
        ),
    ),
    "mimo": (
        (""),
        (
            "hidden_size intermediate_size max_position_embeddings model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads num_nextn_predict_layers rms_norm_eps rope_scaling "
            "rope_theta rope_traditional tie_word_embeddings vocab_size"
        ),
    ),
    "mimo_v2_flash": (
        (""),
        (
            "add_full_attention_sink_bias add_swa_attention_sink_bias attention_value_scale head_dim "
            "hidden_size hybrid_layer_pattern intermediate_size layernorm_epsilon model_type "
            "moe_intermediate_size moe_layer_freq n_group n_routed_experts n_shared_experts "
            "norm_topk_prob num_attention_heads num_experts_per_tok num_hidden_layers "
            "num_key_value_heads partial_rotary_factor rope_theta routed_scaling_factor "
            "sliding_window_size swa_head_dim swa_num_attention_heads swa_num_key_value_heads "
            "swa_rope_theta swa_v_head_dim topk_group topk_method v_head_dim vocab_size"
        ),
    ),
    "minicpm": (
        (""),
        (
            "dim_model_base hidden_size intermediate_size max_position_embeddings model_type "
            "num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps rope_scaling "
            "rope_theta rope_traditional scale_depth scale_emb tie_word_embeddings vocab_size"
        ),
    ),
    "minicpm3": (
        (""),
        (
            "attention_bias dim_model_base hidden_size intermediate_size kv_lora_rank "
            "max_position_embeddings model_type num_attention_heads num_hidden_layers q_lora_rank "
            "qk_nope_head_dim qk_rope_head_dim rms_norm_eps rope_scaling rope_theta scale_depth "
            "scale_emb tie_word_embeddings vocab_size"
        ),
    ),
    "minimax": (
        (""),
        (
            "head_dim hidden_size intermediate_size model_type num_attention_heads num_experts_per_tok "
            "num_hidden_layers num_key_value_heads num_local_experts rms_norm_eps rope_theta rotary_dim "
            "tie_word_embeddings use_qk_norm vocab_size"
        ),
    ),
    "minimax_m3_vl": (
        ("model_type text_config"),
        (
            "dense_intermediate_size head_dim hidden_size index_block_size index_head_dim "
            "index_local_blocks index_n_heads index_topk_blocks intermediate_size layer_types "
            "max_position_embeddings mlp_layer_types model_type moe_layer_freq num_attention_heads "
            "num_experts_per_tok num_hidden_layers num_key_value_heads num_local_experts "
            "partial_rotary_factor rms_norm_eps rope_parameters rope_theta rotary_dim "
            "routed_scaling_factor shared_intermediate_size sparse_attention_config "
            "sparse_attention_freq swiglu_alpha swiglu_limit tie_word_embeddings use_gemma_norm "
            "use_qk_norm vocab_size"
        ),
    ),
    "ministral3": (
        (""),
        (
            "head_dim hidden_size intermediate_size layer_types max_position_embeddings model_type "
            "num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps rope_parameters "
            "sliding_window tie_word_embeddings vocab_size"
        ),
    ),
    "mistral3": (
        ("model_type text_config"),
        (
            "head_dim hidden_size intermediate_size layer_types max_position_embeddings model_type "
            "num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps rope_parameters "
            "sliding_window tie_word_embeddings vocab_size"
        ),
    ),
    "mistral4": (
        (""),
        (
            "attention_bias first_k_dense_replace head_dim hidden_size intermediate_size kv_lora_rank "
            "max_position_embeddings model_type moe_intermediate_size n_group n_routed_experts "
            "n_shared_experts norm_topk_prob num_attention_heads num_experts_per_tok num_hidden_layers "
            "q_lora_rank qk_head_dim qk_nope_head_dim qk_rope_head_dim rms_norm_eps rope_interleave "
            "rope_parameters rope_scaling rope_theta routed_scaling_factor tie_word_embeddings "
            "topk_group v_head_dim vocab_size"
        ),
    ),
    "mixtral": (
        (""),
        (
            "hidden_size intermediate_size model_type num_attention_heads num_experts_per_tok "
            "num_hidden_layers num_key_value_heads num_local_experts rms_norm_eps rope_theta "
            "rope_traditional tie_word_embeddings vocab_size"
        ),
    ),
    "muse_glimmer": (
        (""),
        (
            "final_logit_softcapping head_dim hidden_size intermediate_size layer_rope_theta "
            "layer_types model_type num_attention_heads num_hidden_layers num_key_value_heads "
            "output_multiplier post_norm_eps qk_scale_factor rms_norm_eps rope_parameters rope_theta "
            "sliding_window tie_word_embeddings vocab_size"
        ),
    ),
    "nanbeige": (
        (""),
        (
            "attention_bias enable_depth_attention enable_double_loop_split head_dim hidden_size "
            "intermediate_size loop_loss_weights loop_share_kv max_position_embeddings mlp_bias "
            "model_type num_attention_heads num_hidden_layers num_key_value_heads num_loops "
            "rms_norm_eps rope_scaling rope_theta skip_loop_final_norm tie_word_embeddings vocab_size"
        ),
    ),
    "nanochat": (
        (""),
        (
            "hidden_size intermediate_size model_type num_attention_heads num_hidden_layers "
            "num_key_value_heads rope_theta vocab_size"
        ),
    ),
    "nemotron": (
        (""),
        (
            "attention_bias head_dim hidden_size intermediate_size mlp_bias model_type norm_eps "
            "num_attention_heads num_hidden_layers num_key_value_heads partial_rotary_factor "
            "rope_scaling rope_theta tie_word_embeddings vocab_size"
        ),
    ),
    "nemotron-nas": (
        (""),
        (
            "attention_bias block_configs hidden_act hidden_size max_position_embeddings mlp_bias "
            "model_type num_attention_heads num_hidden_layers rms_norm_eps rope_scaling rope_theta "
            "tie_word_embeddings vocab_size"
        ),
    ),
    "nemotron_h": (
        (""),
        (
            "attention_bias conv_kernel head_dim hidden_size hybrid_override_pattern intermediate_size "
            "layer_norm_epsilon layer_types layers_block_type mamba_head_dim mamba_num_heads "
            "mamba_proj_bias mlp_bias model_type moe_intermediate_size moe_latent_size "
            "moe_shared_expert_intermediate_size n_group n_groups n_routed_experts n_shared_experts "
            "norm_topk_prob num_attention_heads num_experts_per_tok num_hidden_layers "
            "num_key_value_heads routed_scaling_factor ssm_state_size time_step_limit topk_group "
            "use_conv_bias vocab_size"
        ),
    ),
    "olmo2": (
        (""),
        (
            "attention_bias head_dim hidden_size intermediate_size max_position_embeddings mlp_bias "
            "model_type num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps "
            "rope_scaling rope_theta rope_traditional tie_word_embeddings vocab_size"
        ),
    ),
    "olmo3": (
        (""),
        (
            "attention_bias head_dim hidden_size intermediate_size layer_types max_position_embeddings "
            "model_type num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps "
            "rope_scaling rope_theta sliding_window tie_word_embeddings vocab_size"
        ),
    ),
    "olmo_hybrid": (
        (""),
        (
            "attention_bias head_dim hidden_size intermediate_size layer_norm_epsilon layer_types "
            "linear_allow_neg_eigval linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads "
            "linear_num_value_heads linear_value_head_dim max_position_embeddings model_type "
            "num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps rope_parameters "
            "rope_theta tie_word_embeddings vocab_size"
        ),
    ),
    "olmoe": (
        (""),
        (
            "attention_bias head_dim hidden_size intermediate_size max_position_embeddings mlp_bias "
            "model_type norm_topk_prob num_attention_heads num_experts num_experts_per_tok "
            "num_hidden_layers num_key_value_heads rms_norm_eps rope_scaling rope_theta "
            "rope_traditional tie_word_embeddings vocab_size"
        ),
    ),
    "openelm": (
        (""),
        (
            "ffn_dim_divisor ffn_multipliers head_dim model_dim model_type normalize_qk_projections "
            "num_kv_heads num_query_heads num_transformer_layers rms_norm_eps rope_freq_constant "
            "share_input_output_layers vocab_size"
        ),
    ),
    "phi": (
        (""),
        (
            "hidden_size intermediate_size layer_norm_eps model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads partial_rotary_factor rope_theta vocab_size"
        ),
    ),
    "phi3": (
        (""),
        (
            "hidden_size intermediate_size max_position_embeddings model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads original_max_position_embeddings "
            "partial_rotary_factor rms_norm_eps rope_scaling rope_theta rope_traditional "
            "tie_word_embeddings vocab_size"
        ),
    ),
    "phimoe": (
        (""),
        (
            "hidden_size intermediate_size max_position_embeddings model_type num_attention_heads "
            "num_experts_per_tok num_hidden_layers num_key_value_heads num_local_experts "
            "original_max_position_embeddings rms_norm_eps rope_scaling rope_theta router_jitter_noise "
            "vocab_size"
        ),
    ),
    "phixtral": (
        (""),
        ("model_dim model_type num_experts_per_tok num_heads num_layers num_local_experts num_vocab rotary_dim"),
    ),
    "pixtral": (
        ("model_type text_config"),
        (
            "attention_bias head_dim hidden_size intermediate_size layer_types max_position_embeddings "
            "mlp_bias model_type num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps "
            "rope_scaling rope_theta rope_traditional sliding_window tie_word_embeddings vocab_size"
        ),
    ),
    "plamo": (
        (""),
        (
            "hidden_size intermediate_size model_type n_shared_head num_attention_heads "
            "num_hidden_layers rms_norm_eps rope_theta rope_traditional vocab_size"
        ),
    ),
    "plamo2": (
        (""),
        (
            "full_attention_idx hidden_size hidden_size_per_head intermediate_size mamba_chunk_size "
            "mamba_d_conv mamba_d_state mamba_enabled mamba_num_heads mamba_step "
            "max_position_embeddings model_type num_attention_heads num_hidden_layers "
            "num_key_value_heads rms_norm_eps tie_word_embeddings vocab_size"
        ),
    ),
    "plamo3": (
        (""),
        (
            "head_dim hidden_size intermediate_size model_type num_attention_heads num_hidden_layers "
            "num_key_value_heads rms_norm_eps rope_local_theta rope_theta sliding_window "
            "sliding_window_pattern tie_word_embeddings vocab_size window_size"
        ),
    ),
    "qwen": (
        (""),
        (
            "hidden_size intermediate_size kv_channels layer_norm_epsilon model_type no_bias "
            "num_attention_heads num_hidden_layers vocab_size"
        ),
    ),
    "qwen2": (
        (""),
        (
            "hidden_size intermediate_size max_position_embeddings model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads rms_norm_eps rope_scaling rope_theta "
            "rope_traditional tie_word_embeddings vocab_size"
        ),
    ),
    "qwen2_moe": (
        (""),
        (
            "hidden_size model_type moe_intermediate_size num_attention_heads num_experts "
            "num_experts_per_tok num_hidden_layers num_key_value_heads rms_norm_eps rope_scaling "
            "rope_theta rope_traditional shared_expert_intermediate_size vocab_size"
        ),
    ),
    "qwen2_vl": (
        ("model_type text_config"),
        (
            "hidden_size intermediate_size max_position_embeddings model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads rms_norm_eps rope_scaling rope_theta "
            "rope_traditional tie_word_embeddings vocab_size"
        ),
    ),
    "qwen3": (
        (""),
        (
            "head_dim hidden_size intermediate_size max_position_embeddings model_type "
            "num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps rope_parameters "
            "rope_scaling rope_theta tie_word_embeddings vocab_size"
        ),
    ),
    "qwen3_5": (
        ("model_type text_config"),
        (
            "attention_bias decoder_sparse_step full_attention_interval head_dim hidden_size "
            "intermediate_size linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads "
            "linear_num_value_heads linear_value_head_dim max_position_embeddings model_type "
            "moe_intermediate_size norm_topk_prob num_attention_heads num_experts num_experts_per_tok "
            "num_hidden_layers num_key_value_heads partial_rotary_factor rms_norm_eps rope_parameters "
            "rope_scaling rope_theta shared_expert_intermediate_size tie_word_embeddings vocab_size"
        ),
    ),
    "qwen3_5_moe": (
        ("model_type text_config"),
        (
            "attention_bias decoder_sparse_step full_attention_interval head_dim hidden_size "
            "intermediate_size linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads "
            "linear_num_value_heads linear_value_head_dim max_position_embeddings model_type "
            "moe_intermediate_size norm_topk_prob num_attention_heads num_experts num_experts_per_tok "
            "num_hidden_layers num_key_value_heads partial_rotary_factor rms_norm_eps rope_parameters "
            "rope_scaling rope_theta shared_expert_intermediate_size tie_word_embeddings vocab_size"
        ),
    ),
    "qwen3_moe": (
        (""),
        (
            "decoder_sparse_step head_dim hidden_size intermediate_size mlp_only_layers model_type "
            "moe_intermediate_size norm_topk_prob num_attention_heads num_experts num_experts_per_tok "
            "num_hidden_layers num_key_value_heads rms_norm_eps rope_theta tie_word_embeddings "
            "vocab_size"
        ),
    ),
    "qwen3_next": (
        (""),
        (
            "attention_bias decoder_sparse_step full_attention_interval head_dim hidden_size "
            "intermediate_size linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads "
            "linear_num_value_heads linear_value_head_dim max_position_embeddings mlp_only_layers "
            "model_type moe_intermediate_size norm_topk_prob num_attention_heads num_experts "
            "num_experts_per_tok num_hidden_layers num_key_value_heads partial_rotary_factor "
            "rms_norm_eps rope_scaling rope_theta shared_expert_intermediate_size tie_word_embeddings "
            "vocab_size"
        ),
    ),
    "qwen3_vl": (
        ("model_type text_config"),
        (
            "head_dim hidden_size intermediate_size max_position_embeddings model_type "
            "num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps rope_parameters "
            "rope_scaling rope_theta tie_word_embeddings vocab_size"
        ),
    ),
    "qwen3_vl_moe": (
        ("model_type text_config"),
        (
            "decoder_sparse_step head_dim hidden_size intermediate_size mlp_only_layers model_type "
            "moe_intermediate_size norm_topk_prob num_attention_heads num_experts num_experts_per_tok "
            "num_hidden_layers num_key_value_heads rms_norm_eps rope_theta tie_word_embeddings "
            "vocab_size"
        ),
    ),
    "recurrent_gemma": (
        (""),
        (
            "_block_types attention_window_size block_types embeddings_scale_by_sqrt_dim hidden_size "
            "intermediate_size logits_soft_cap model_type num_attention_heads num_hidden_layers "
            "rms_norm_eps vocab_size"
        ),
    ),
    "rwkv7": (
        (""),
        (
            "a_low_rank_dim decay_low_rank_dim gate_low_rank_dim head_dim hidden_size intermediate_size "
            "model_type norm_eps num_hidden_layers tie_word_embeddings v_low_rank_dim vocab_size"
        ),
    ),
    "seed_oss": (
        (""),
        (
            "attention_bias attention_out_bias head_dim hidden_size intermediate_size "
            "max_position_embeddings mlp_bias model_type num_attention_heads num_hidden_layers "
            "num_key_value_heads rms_norm_eps rope_scaling rope_theta rope_traditional "
            "tie_word_embeddings vocab_size"
        ),
    ),
    "smollm3": (
        (""),
        (
            "attention_bias head_dim hidden_size intermediate_size layer_types max_position_embeddings "
            "mlp_bias model_type no_rope_layer_interval no_rope_layers num_attention_heads "
            "num_hidden_layers num_key_value_heads rms_norm_eps rope_scaling rope_theta "
            "rope_traditional sliding_window tie_word_embeddings vocab_size"
        ),
    ),
    "solar_open": (
        (""),
        (
            "attention_bias first_k_dense_replace head_dim hidden_size intermediate_size model_type "
            "moe_intermediate_size n_group n_routed_experts n_shared_experts norm_topk_prob "
            "num_attention_heads num_experts_per_tok num_hidden_layers num_key_value_heads "
            "partial_rotary_factor rms_norm_eps rope_theta routed_scaling_factor topk_group topk_method "
            "use_qk_norm vocab_size"
        ),
    ),
    "spark2_5": (
        (""),
        (
            "attention_bias gate_attn_act_mode head_dim headwise_attn_output_gate hidden_act "
            "hidden_size intermediate_size layer_types mlp_bias model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads rms_norm_eps rope_parameters sliding_window "
            "tie_word_embeddings vocab_size"
        ),
    ),
    "stablelm": (
        (""),
        (
            "hidden_size intermediate_size layer_norm_eps model_type num_attention_heads "
            "num_hidden_layers num_key_value_heads partial_rotary_factor qk_layernorm rope_theta "
            "use_parallel_residual use_qkv_bias vocab_size"
        ),
    ),
    "starcoder2": (
        (""),
        (
            "hidden_size intermediate_size model_type norm_epsilon num_attention_heads "
            "num_hidden_layers num_key_value_heads rope_theta tie_word_embeddings vocab_size"
        ),
    ),
    "step3p5": (
        (""),
        (
            "attention_other_setting head_dim hidden_size intermediate_size layer_types "
            "max_position_embeddings model_type moe_intermediate_size moe_layers_enum moe_num_experts "
            "moe_router_scaling_factor moe_top_k norm_expert_weight num_attention_groups "
            "num_attention_heads num_hidden_layers partial_rotary_factors rms_norm_eps rope_scaling "
            "rope_theta share_expert_dim sliding_window swiglu_limits swiglu_limits_shared "
            "use_head_wise_attn_gate vocab_size yarn_only_types"
        ),
    ),
    "talkie": (
        (""),
        (
            "head_dim hidden_size intermediate_size model_type num_attention_heads num_hidden_layers "
            "rms_norm_eps rope_theta vocab_size"
        ),
    ),
    "telechat3": (
        (""),
        (
            "attention_bias head_dim hidden_size intermediate_size max_position_embeddings mlp_bias "
            "model_type num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps "
            "rope_scaling rope_theta tie_word_embeddings vocab_size"
        ),
    ),
    "youtu_llm": (
        (""),
        (
            "attention_bias hidden_size intermediate_size kv_lora_rank max_position_embeddings mlp_bias "
            "model_type num_attention_heads num_hidden_layers q_lora_rank qk_nope_head_dim "
            "qk_rope_head_dim rms_norm_eps rope_scaling rope_theta rope_traditional tie_word_embeddings "
            "v_head_dim vocab_size"
        ),
    ),
}
