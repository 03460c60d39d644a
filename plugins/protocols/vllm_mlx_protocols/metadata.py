"""The pairs that clients attach to what is kept for them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from .limits import MAX_METADATA

Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=MAX_METADATA)
]
