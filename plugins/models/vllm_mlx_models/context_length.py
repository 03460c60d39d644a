"""How many tokens a checkpoint's config says it can attend to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEFAULT = 32768
"""For checkpoints that name no limit, such as purely recurrent ones."""

_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
    "model_max_length",
)
_MULTIPLIES_ORIGINAL = frozenset({"yarn", "deepseek_yarn"})
_MULTIPLIES_LENGTH = frozenset({"linear", "dynamic"})


def context_length(config: Mapping[str, Any], tokenizer_limit: int | None = None) -> int:
    """Return the limit in tokens: from the text part of ``config``, else ``tokenizer_limit``, else a default."""
    nested = config.get("text_config") or config.get("llm_config")
    for part in (nested, config):
        if isinstance(part, Mapping):
            for key in _KEYS:
                length = part.get(key)
                if isinstance(length, int) and not isinstance(length, bool) and length > 0:
                    return _scaled(length, part, str(part.get("model_type") or config.get("model_type") or ""))
    return tokenizer_limit or DEFAULT


def _scaled(length: int, config: Mapping[str, Any], model_type: str) -> int:
    """Apply rope scaling where the config gives the length before it."""
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(rope, Mapping):
        return length
    rope = rope.get("full_attention", rope)
    factor = rope.get("factor") if isinstance(rope, Mapping) else None
    if not isinstance(factor, int | float) or factor <= 1:
        return length
    kind = rope.get("rope_type") or rope.get("type")
    if kind in _MULTIPLIES_ORIGINAL:
        original = rope.get("original_max_position_embeddings")
        return max(length, int(original * factor)) if isinstance(original, int) else int(length * factor)
    if kind in _MULTIPLIES_LENGTH and not model_type.startswith("gemma3"):  # whose length is the scaled one
        return int(length * factor)
    return length
