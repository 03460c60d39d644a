"""The configurations of the tiny models: one per architecture, chosen to cover every kind of layer state."""

from __future__ import annotations

from typing import Any

from ._tiny_tokenizer import TOKEN_IDS, VOCAB_SIZE

BOS = TOKEN_IDS["<|endoftext|>"]
EOS = TOKEN_IDS["<|im_end|>"]
PAD = TOKEN_IDS["<|pad|>"]


def _base(model_type: str, **more: Any) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
    } | more


def _nested(model_type: str, text_config: dict[str, Any]) -> dict[str, Any]:
    return {"model_type": model_type, "eos_token_id": EOS, "bos_token_id": BOS, "text_config": text_config}


_MOE = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
}
_MLA = {
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
}
_DEEPSEEK = _MLA | {
    "n_shared_experts": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "tie_word_embeddings": False,
}
_GATED_DELTA = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
}
_MAMBA = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_n_groups": 1,
    "mamba_proj_bias": False,
    "mamba_conv_bias": True,
}
_WINDOW = {"sliding_window": 32, "layer_types": ["sliding_attention", "full_attention"]}

CONFIGS: dict[str, dict[str, Any]] = {
    # -- every layer keeps keys and values of all tokens
    "llama": _base("llama", architectures=["LlamaForCausalLM"]),
    "qwen2": _base("qwen2", architectures=["Qwen2ForCausalLM"]),
    "qwen3": _base("qwen3", architectures=["Qwen3ForCausalLM"]),
    "qwen3_moe": _base("qwen3_moe", **_MOE),
    "deepseek_v3": _base("deepseek_v3", **_DEEPSEEK),  # latents instead of keys and values
    "deepseek_v32": _base(  # a list of two caches per layer: latents, and the sparse indexer's keys
        "deepseek_v32", **_DEEPSEEK, index_head_dim=32, index_n_heads=2, index_topk=64
    ),
    # -- some layers keep a window only
    "llama_swa": _base("llama", **_WINDOW),
    "gemma3": _base(
        "gemma3_text",
        query_pre_attn_scalar=16,
        sliding_window=32,
        sliding_window_pattern=2,
        rope_local_base_freq=10000.0,
    ),
    "gpt_oss": _base("gpt_oss", **_WINDOW, num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=False),
    # -- some or all layers keep a recurrent state
    "mamba2": _base(
        "mamba2",
        num_heads=8,
        head_dim=16,
        state_size=16,
        conv_kernel=4,
        n_groups=1,
        use_bias=False,
        use_conv_bias=True,
        layer_norm_epsilon=1e-5,
        time_step_limit=[0.0, 1e30],
        time_step_rank="auto",
    ),
    "qwen3_next": _base(
        "qwen3_next",
        **_MOE,
        **_GATED_DELTA,
        shared_expert_intermediate_size=32,
        partial_rotary_factor=0.5,
        tie_word_embeddings=False,
    ),
    "qwen3_5": _nested(
        "qwen3_5",
        _base(
            "qwen3_5_text",
            **_GATED_DELTA,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
                "mrope_section": [2, 1, 1],
            },
        ),
    ),
    "granite_hybrid": _base(
        "granitemoehybrid",
        **_MAMBA,
        layer_types=["mamba", "attention"],
        attention_bias=False,
        embedding_multiplier=1.0,
        attention_multiplier=0.25,
        logits_scaling=1.0,
        residual_multiplier=1.0,
        num_local_experts=4,
        num_experts_per_tok=2,
        shared_intermediate_size=64,
        position_embedding_type="nope",
    ),
    "falcon_h1": _base("falcon_h1", **_MAMBA, mamba_d_ssm=128, mamba_chunk_size=32),  # both kinds in every layer
    "lfm2": _base(
        "lfm2",
        norm_eps=1e-5,
        conv_bias=False,
        conv_L_cache=3,
        block_dim=64,
        block_ff_dim=128,
        block_multiple_of=32,
        block_ffn_dim_multiplier=1.0,
        block_auto_adjust_ff_dim=False,
        layer_types=["conv", "full_attention"],
    ),
    "kimi_linear": _base(
        "kimi_linear",
        **_MLA,
        num_experts=4,
        num_experts_per_token=2,
        moe_intermediate_size=32,
        num_shared_experts=1,
        first_k_dense_replace=1,
        model_max_length=4096,
        mla_use_nope=True,
        tie_word_embeddings=False,
        linear_attn_config={
            "full_attn_layers": [2],
            "kda_layers": [1],
            "head_dim": 16,
            "num_heads": 4,
            "short_conv_kernel_size": 4,
        },
    ),
    "nemotron_h": _base(  # mlx-lm lets right padding into its state: wrong when prompt lengths differ in one prefill
        "nemotron_h",
        num_hidden_layers=4,
        hybrid_override_pattern=["M", "-", "*", "M"],
        mamba_num_heads=8,
        mamba_head_dim=16,
        ssm_state_size=16,
        conv_kernel=4,
        n_groups=2,
        attention_bias=False,
        mamba_proj_bias=False,
        mlp_bias=False,
        use_bias=False,
        use_conv_bias=True,
        layer_norm_epsilon=1e-5,
        tie_word_embeddings=False,
    ),
    # -- the state of some layers cannot be batched at all
    "llama4": _nested(
        "llama4",
        _base(
            "llama4_text",
            intermediate_size_mlp=128,
            num_hidden_layers=4,
            attention_bias=False,
            attention_chunk_size=64,
            interleave_moe_layer_step=2,
            num_local_experts=4,
            num_experts_per_tok=1,
            rope_scaling=None,
            use_qk_norm=True,
            no_rope_layers=[1, 1, 1, 0],
            tie_word_embeddings=False,
        ),
    ),
}
