"""The list of served models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from vllm_mlx_core.api import ModelInfo


class Model(msgspec.Struct, kw_only=True):
    """One served model; ``max_model_len`` is its context length in tokens."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "vllm-mlx"
    max_model_len: int


class ModelList(msgspec.Struct, kw_only=True):
    """The body of ``GET /v1/models``."""

    object: Literal["list"] = "list"
    data: list[Model]


def to_model(info: ModelInfo) -> Model:
    """Return one model's entry. Pure."""
    return Model(id=info.id, created=info.created, max_model_len=info.context_length)


def to_list(infos: Iterable[ModelInfo]) -> ModelList:
    """Return the list, in the order given. Pure."""
    return ModelList(data=[to_model(info) for info in infos])
