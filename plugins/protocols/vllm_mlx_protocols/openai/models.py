"""The served models, as clients look them up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from vllm_mlx_core.api import EngineClient, ModelInfo, NotFound

from .errors import model_not_found


class Model(msgspec.Struct, kw_only=True):
    """One served model; its context length in tokens has the names that vLLM's and other servers' clients read."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "vllm-mlx"
    max_model_len: int
    context_length: int
    capabilities: Mapping[str, Any]
    state: Literal["loaded"] = "loaded"


class ModelList(msgspec.Struct, kw_only=True):
    """The body of ``GET /v1/models``."""

    object: Literal["list"] = "list"
    data: list[Model]


def find(engine: EngineClient, name: str) -> ModelInfo:
    """Return the model served under a name. Raises NotFound as OpenAI says it."""
    try:
        return engine.model(name)
    except NotFound as error:
        raise model_not_found(error) from error


def to_model(info: ModelInfo) -> Model:
    """Return one model's entry. Pure."""
    return Model(
        id=info.id,
        created=info.created,
        max_model_len=info.context_length,
        context_length=info.context_length,
        capabilities=info.capabilities,
    )


def to_list(infos: Iterable[ModelInfo]) -> ModelList:
    """Return the list, in the order given. Pure."""
    return ModelList(data=[to_model(info) for info in infos])
