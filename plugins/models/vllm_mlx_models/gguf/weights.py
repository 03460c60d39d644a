"""model.safetensors from a GGUF file. Engine thread: this is the part that needs MLX."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from vllm_mlx_core.api import ModelError, UnsupportedModel

GROUP_SIZE = 32
"""Values per block, in the quantisations that MLX keeps."""

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_COMPUTED = frozenset({"rope_freqs.weight"})
"""Tensors that the model computes itself."""


def write_weights(source: Path, config: Mapping[str, Any], target: Path, *, dequantize: bool) -> Mapping[str, Any]:
    """Write the weights of ``source`` to ``target`` and return what config.json must add about them.

    With ``dequantize`` all of them become float32; else blocks are kept bit for bit and everything beside them is
    float16, or float32 in a file that is float32 throughout. Raises ModelError for what cannot be read and OSError for
    what cannot be written.
    """
    try:
        raw = mx.load(str(source), format="gguf")
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"{source} cannot be read: {error}") from error
    assert isinstance(raw, dict)
    weights = _rename(raw, config)
    modules = [name.removesuffix(".scales") for name in weights if name.endswith(".scales")]
    if dequantize:
        weights = _dequantize(weights, modules)
        modules = []
    dtype = mx.float32
    if modules or (not dequantize and any(array.dtype == mx.float16 for array in weights.values())):
        dtype = mx.float16
    weights = {
        name: array.astype(dtype) if mx.issubdtype(array.dtype, mx.floating) else array
        for name, array in weights.items()
    }
    mx.eval(weights)
    try:
        mx.save_safetensors(str(target), weights, metadata={"format": "mlx"})
    except RuntimeError as error:  # MLX does not say why; that the disk is full is by far the likeliest
        free = shutil.disk_usage(target.parent).free
        raise OSError(f"{error} ({free / 1e6:.0f} MB are free)") from error
    added: dict[str, Any] = {"torch_dtype": str(dtype).removeprefix("mlx.core.")}
    if modules:
        widths = {module: _bits(weights, module) for module in modules}
        common = min(widths.values())
        quantization: dict[str, Any] = {"group_size": GROUP_SIZE, "bits": common, "mode": "affine"}
        for module, bits in widths.items():
            if bits != common:
                quantization[module] = {"group_size": GROUP_SIZE, "bits": bits, "mode": "affine"}
        added["quantization"] = quantization
    return added


def _rename(raw: Mapping[str, mx.array], config: Mapping[str, Any]) -> dict[str, mx.array]:
    weights: dict[str, mx.array] = {}
    for name, array in raw.items():
        if name in _COMPUTED:
            continue
        *stem, kind = name.split(".")
        if not stem or stem[-1] not in _NAMES:
            raise UnsupportedModel(f"The GGUF file has a tensor of unknown use: {name}.")
        if config["model_type"] == "llama" and stem[-1] in ("attn_q", "attn_k"):
            key = "num_attention_heads" if stem[-1] == "attn_q" else "num_key_value_heads"
            array = _half_split(array, config[key])
        prefix = f"model.layers.{stem[1]}." if stem[0] == "blk" else ""
        weights[f"{prefix}{_NAMES[stem[-1]]}.{kind}"] = array
    return weights


def _half_split(rows: mx.array, heads: int) -> mx.array:
    """Put the rows of each head from pairs (GGUF's rotary order for llama) into halves (everyone else's)."""
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _bits(weights: Mapping[str, mx.array], module: str) -> int:
    values: int = weights[f"{module}.scales"].shape[-1] * GROUP_SIZE
    words: int = weights[f"{module}.weight"].shape[-1]
    return words * 32 // values


def _dequantize(weights: Mapping[str, mx.array], modules: list[str]) -> dict[str, mx.array]:
    done = {name: array for name, array in weights.items() if not name.endswith((".scales", ".biases"))}
    for module in modules:
        done[f"{module}.weight"] = mx.dequantize(
            weights[f"{module}.weight"],
            weights[f"{module}.scales"].astype(mx.float32),
            weights[f"{module}.biases"].astype(mx.float32),
            group_size=GROUP_SIZE,
            bits=_bits(weights, module),
        )
    return done
