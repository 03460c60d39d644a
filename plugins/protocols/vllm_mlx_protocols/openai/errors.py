"""OpenAI's error envelope."""

from __future__ import annotations

from typing import Any

from vllm_mlx_core.api import NotFound, RequestError
from vllm_mlx_protocols.http import documented_errors

_TEXT_OR_NULL = {"type": ["string", "null"]}
DOCUMENTED_ERRORS = documented_errors(
    "OpenAI's error envelope",
    error={
        "type": "object",
        "properties": {
            "message": {"type": "string"},
            "type": {"type": "string"},
            "param": _TEXT_OR_NULL,
            "code": _TEXT_OR_NULL,
        },
        "required": ["message", "type", "param", "code"],
    },
)
"""What every front-end that speaks OpenAI's way says of its errors."""


def envelope(error: RequestError) -> dict[str, Any]:
    """Return ``{"error": …}`` with all four fields, as strict clients expect."""
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}}


def model_not_found(error: NotFound) -> NotFound:
    """Return a lookup's error as OpenAI says it."""
    return NotFound(error.message, param="model", code="model_not_found")
