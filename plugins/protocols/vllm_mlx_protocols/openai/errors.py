"""OpenAI's error envelope."""

from __future__ import annotations

from typing import Any

from vllm_mlx_core.api import NotFound, RequestError


def envelope(error: RequestError) -> dict[str, Any]:
    """Return ``{"error": …}`` with all four fields, as strict clients expect."""
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}}


def model_not_found(error: NotFound) -> NotFound:
    """Return a lookup's error as OpenAI says it."""
    return NotFound(error.message, param="model", code="model_not_found")
