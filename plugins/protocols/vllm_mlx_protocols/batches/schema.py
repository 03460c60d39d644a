"""What clients may send."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from vllm_mlx_protocols.metadata import Metadata

from .limits import MAX_LIFETIME_S, MIN_LIFETIME_S

Lifetime = Annotated[int, Field(ge=MIN_LIFETIME_S, le=MAX_LIFETIME_S)]


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", use_attribute_docstrings=True)


class ExpiresAfter(_Body):
    """How long a file is kept."""

    anchor: Literal["created_at"]
    seconds: Lifetime


class UploadFields(_Body):
    """The form of ``POST /v1/files``, but for the ``file`` itself."""

    purpose: Literal["batch"]
    expires_after: ExpiresAfter | None = None
    """Sent as ``expires_after[anchor]`` and ``expires_after[seconds]``."""


class BatchRequest(_Body):
    """The body of ``POST /v1/batches``."""

    input_file_id: str
    """An upload with the purpose ``batch``."""
    endpoint: str
    """What all lines ask for."""
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None
    """How long the results are kept, from when the batch has ended."""
