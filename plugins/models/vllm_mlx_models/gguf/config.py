"""config.json from a GGUF file's metadata, for the layouts we can map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_mlx_core.api import UnsupportedModel

from .header import GGUFHeader

_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
_ROPE_KINDS = {"linear": "linear", "yarn": "yarn"}


def model_config(header: GGUFHeader) -> dict[str, Any]:
    """Return the config. Raises UnsupportedModel for another architecture, ModelError if values are missing."""
    architecture = header.architecture
    if architecture not in _CLASSES or header.get("expert_count"):
        what = f"{architecture or 'no architecture'}{' with experts' if header.get('expert_count') else ''}"
        raise UnsupportedModel(
            f"GGUF files of the architecture {what} are not supported; {', '.join(_CLASSES)} are. "
            "Use the model in MLX or safetensors format."
        )
    heads = int(header.need("attention.head_count"))
    hidden = int(header.need("embedding_length"))
    config: dict[str, Any] = {
        "architectures": [_CLASSES[architecture]],
        "model_type": architecture,
        "hidden_size": hidden,
        "intermediate_size": int(header.need("feed_forward_length")),
        "num_hidden_layers": int(header.need("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(header.get("attention.head_count_kv", heads)),
        "head_dim": int(header.get("attention.key_length", hidden // heads)),
        "max_position_embeddings": int(header.need("context_length")),
        # Stored as float32: three digits give back the decimal number it was.
        "rms_norm_eps": float(f"{header.need('attention.layer_norm_rms_epsilon'):.3g}"),
        "rope_theta": float(header.get("rope.freq_base", 10000.0)),
        "vocab_size": len(header.tokenizer("tokens", ())),
        "hidden_act": "silu",
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in header.tensors,
    }
    if scaling := _rope_scaling(header):
        config["rope_scaling"] = scaling
    return {**config, **token_ids(header)}


def token_ids(header: GGUFHeader) -> Mapping[str, int]:
    """Return the ids of the special tokens the file names, as config.json calls them."""
    named = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "pad_token_id": "padding_token_id"}
    found = {name: header.tokenizer(key) for name, key in named.items()}
    return {name: int(value) for name, value in found.items() if value is not None}


def generation_config(header: GGUFHeader) -> dict[str, Any]:
    """Return generation_config.json: the ids that end a text or a turn, and the sampling the file advises."""
    ends = [header.tokenizer(key) for key in ("eos_token_id", "eot_token_id")]
    config: dict[str, Any] = {"eos_token_id": sorted({int(i) for i in ends if i is not None})}
    for key, name in _SAMPLING.items():
        value = header.fields.get(f"general.sampling.{key}")
        if value is not None:
            config[name] = value
    return config


def _rope_scaling(header: GGUFHeader) -> dict[str, Any] | None:
    if header.rope_factor is not None and header.rope_factor > 1:
        # Llama 3's way: the file has the stretched frequencies, of which the slowest shows the factor. The other
        # numbers are the same in all its checkpoints.
        return {
            "rope_type": "llama3",
            "factor": header.rope_factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
    kind = _ROPE_KINDS.get(str(header.get("rope.scaling.type", "")))
    factor = header.get("rope.scaling.factor")
    if kind is None or not factor or factor <= 1:
        return None
    scaling: dict[str, Any] = {"rope_type": kind, "factor": float(factor)}
    if original := header.get("rope.scaling.original_context_length"):
        scaling["original_max_position_embeddings"] = int(original)
    return scaling
