"""The served models, as Ollama's clients look them up. What a server does not know of a model is an empty text."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from vllm_mlx_core.api import ModelInfo

FOREVER = "9999-12-31T23:59:59Z"
"""When a model is unloaded."""
_CAPABILITIES = {"tools": "tools", "reasoning": "thinking", "infill": "insert"}
"""Ours, and what Ollama calls them."""


def listed(info: ModelInfo, size: int) -> dict[str, Any]:
    """Return a model's entry in ``/api/tags``; ``size`` is that of its weights in bytes. Pure."""
    return {**_identity(info, size), "modified_at": _time(info.created)}


def running(info: ModelInfo, size: int) -> dict[str, Any]:
    """Return a model's entry in ``/api/ps``: whatever is served is loaded, all of it in the GPU's memory. Pure."""
    return {
        **_identity(info, size),
        "expires_at": FOREVER,
        "size_vram": size,
        "context_length": info.context_length,
    }


def shown(info: ModelInfo) -> dict[str, Any]:
    """Return the body of ``/api/show``. Pure."""
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _details(info),
        "model_info": {
            "general.architecture": info.family,
            "general.basename": info.id,
            f"{info.family}.context_length": info.context_length,
        },
        "capabilities": ["completion", *(name for key, name in _CAPABILITIES.items() if info.capabilities.get(key))],
        "modified_at": _time(info.created),
    }


def _identity(info: ModelInfo, size: int) -> dict[str, Any]:
    return {
        "name": info.id,
        "model": info.id,
        "size": size,
        "digest": hashlib.sha256(f"{info.id}\n{info.created}".encode()).hexdigest(),
        "details": _details(info),
    }


def _details(info: ModelInfo) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "",
        "family": info.family,
        "families": [info.family],
        "parameter_size": "",
        "quantization_level": "",
    }


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
