"""Fields that clients send as a matter of course and that change nothing here. Their types are checked all the same."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from vllm_mlx_protocols import limits


class RequestBody(BaseModel):
    """Null always means "not said". Unknown fields are ignored; values are never converted to another type."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, use_attribute_docstrings=True)


class IgnoredFields(RequestBody):
    """What both generating endpoints accept and ignore."""

    user: str | None = None
    """Ignored: accounting goes by API key."""
    metadata: Annotated[dict[str, Any], Field(max_length=limits.MAX_METADATA)] | None = None
    """Ignored: nothing is stored. At most 16 entries."""
    store: bool | None = None
    """Ignored: nothing is stored."""
    service_tier: str | None = None
    """Ignored: there is one tier; see ``priority``."""
    request_id: str | None = None
    """Ignored: the header X-Request-Id names a request."""
    spaces_between_special_tokens: bool | None = None
    """Ignored: tokens are joined as the tokenizer joins them."""


class IgnoredChatFields(IgnoredFields):
    """What chat completions accept and ignore besides."""

    prediction: dict[str, Any] | None = None
    """Ignored: it would only make the answer faster."""
    verbosity: str | None = None
    """Ignored: models cannot be told."""
    prompt_cache_key: str | None = None
    """Ignored: the prefix cache finds a prompt by its tokens."""
    prompt_cache_retention: str | None = None
    """Ignored: how long prefixes are kept is the operator's to choose."""
    prompt_cache_options: dict[str, Any] | None = None
    """Ignored, as the two above."""
    safety_identifier: str | None = None
    """Ignored, as ``user``."""
