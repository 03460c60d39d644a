"""Ollama's error body."""

from __future__ import annotations

from vllm_mlx_core.api import RequestError
from vllm_mlx_protocols.http import documented_errors

DOCUMENTED_ERRORS = documented_errors("Ollama's error body", error={"type": "string"})


def envelope(error: RequestError) -> dict[str, str]:
    """Return ``{"error": …}``: a text is all there is, so the field at fault is named in it."""
    return {"error": error.message}
