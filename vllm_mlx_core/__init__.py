"""vllm-mlx: serve models on MLX over open protocols, from a plugin host around a continuous-batching engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["LLM", "AsyncEngine", "SamplingParams", "__version__"]

if TYPE_CHECKING:
    from .api import SamplingParams
    from .llm import LLM, AsyncEngine


def __getattr__(name: str) -> Any:
    """Import the Python interface on first use, so that the command line starts without MLX."""
    if name == "SamplingParams":
        from .api import SamplingParams

        return SamplingParams
    if name in ("LLM", "AsyncEngine"):
        from . import llm

        return getattr(llm, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
