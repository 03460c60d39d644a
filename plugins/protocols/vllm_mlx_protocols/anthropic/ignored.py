"""Fields that clients send as a matter of course and that change nothing here. Their types are checked all the same."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Fields(BaseModel):
    """Null always means "not said". Unknown fields are ignored; values are never converted to another type."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True)


class IgnoredFields(Fields):
    """What both routes accept and ignore."""

    cache_control: dict[str, Any] | None = None
    """Ignored, here and in every block and tool: the prefix cache keeps conversations by itself."""
    context_management: dict[str, Any] | None = None
    """Ignored: earlier turns are never edited."""
    compaction: dict[str, Any] | None = None
    """Ignored: a conversation is never summarised."""
    speed: str | None = None
    """Ignored: there is one speed."""
    billing_policy: Any = None
    """Ignored: nothing is billed."""


class IgnoredMessageFields(IgnoredFields):
    """What generating accepts and ignores besides."""

    metadata: dict[str, Any] | None = None
    """Ignored: accounting goes by API key."""
    service_tier: str | None = None
    """Ignored: there is one tier."""
    container: str | dict[str, Any] | None = None
    """Ignored: no tool runs on the server."""
    inference_geo: str | None = None
    """Ignored: the model runs where the server does."""
    diagnostics: dict[str, Any] | None = None
    """Ignored: the cache finds prompts by their tokens and keeps no diagnosis."""
    fallbacks: Any = None
    """Ignored: the model that was asked for answers, or there is an error."""
    fallback_credit_token: Any = None
    """Ignored, as ``fallbacks``."""
