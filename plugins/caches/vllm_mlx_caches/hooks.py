"""The built-in choice of a cache policy."""

from __future__ import annotations

from vllm_mlx_core.api import hookimpl


@hookimpl(trylast=True)
def vllm_mlx_choose_cache() -> str:
    """Choose the policy that suits every kind of layer state and stores a common beginning once."""
    return "radix"
