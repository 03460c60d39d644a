"""What the served models and this server honour: the body of ``GET /v1/capabilities``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from vllm_mlx_core.api import ModelInfo, Settings

ASKED_FOR = ("chat", "completion", "tools", "reasoning", "infill", "vision", "structured_output")
"""What clients ask about. A capability that a model does not claim is one that it has not."""


class ModelCapabilities(msgspec.Struct, kw_only=True):
    """One model. The most that a request may ask it to generate is what its context leaves, or ``max_tokens``."""

    id: str
    aliases: Sequence[str]
    family: str
    context_length: int
    max_tokens: int
    tool_parser: str | None
    reasoning_parser: str | None
    capabilities: Mapping[str, Any]


class Limits(msgspec.Struct, kw_only=True):
    """What the operator allows. Null: no limit of its own."""

    max_completions: int
    max_request_tokens: int | None
    max_body_bytes: int
    max_num_seqs: int
    max_queue: int
    timeout_s: float
    requests_per_minute: int | None


class Capabilities(msgspec.Struct, kw_only=True):
    """The server."""

    version: str
    default_model: str | None
    models: Sequence[ModelCapabilities]
    limits: Limits
    authentication: bool
    validates_tool_calls: bool
    repairs_tool_calls: bool
    routes: Sequence[str]


def to_capabilities(
    infos: Sequence[ModelInfo], settings: Settings, *, routes: Iterable[str], version: str
) -> Capabilities:
    """Return what is honoured. Pure. ``routes`` are the paths that are served."""
    return Capabilities(
        version=version,
        default_model=infos[0].id if infos else None,
        models=[_to_model(info, settings) for info in infos],
        limits=Limits(
            max_completions=settings.max_completions,
            max_request_tokens=settings.max_request_tokens,
            max_body_bytes=settings.max_body_bytes,
            max_num_seqs=settings.engine.max_num_seqs,
            max_queue=settings.engine.max_queue,
            timeout_s=settings.timeout_s,
            requests_per_minute=settings.rate_limit or None,
        ),
        authentication=bool(settings.api_keys),
        validates_tool_calls=settings.validate_tool_calls,
        repairs_tool_calls=settings.repair_tool_calls,
        routes=sorted(routes),
    )


def _to_model(info: ModelInfo, settings: Settings) -> ModelCapabilities:
    most = settings.max_request_tokens
    return ModelCapabilities(
        id=info.id,
        aliases=info.aliases,
        family=info.family,
        context_length=info.context_length,
        max_tokens=info.context_length if most is None else min(most, info.context_length),
        tool_parser=info.tool_parser,
        reasoning_parser=info.reasoning_parser,
        capabilities={**dict.fromkeys(ASKED_FOR, False), **info.capabilities},
    )
