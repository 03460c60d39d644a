"""Under which names a client is sent reasoning."""

from __future__ import annotations

from typing import Literal, TypeAlias

from vllm_mlx_core.api import Settings

ReasoningField: TypeAlias = Literal["reasoning", "reasoning_content"]

_BOTH: tuple[ReasoningField, ...] = ("reasoning", "reasoning_content")


def reasoning_fields(settings: Settings, *, include: bool) -> tuple[ReasoningField, ...]:
    """Return the operator's choice; none if the client wants to see no reasoning."""
    if not include:
        return ()
    return _BOTH if settings.reasoning_fields == "both" else (settings.reasoning_fields,)
