"""Whose files and batches a request may see."""

from __future__ import annotations

from starlette.requests import Request

from vllm_mlx_protocols.http import caller


def owner(request: Request) -> str:
    """Return the name of the request's key; empty if the server asks for none."""
    return caller(request).user or ""
