"""Names of models. Ollama's have a tag, which is ``latest`` if it is left out."""

from __future__ import annotations

from vllm_mlx_core.api import EngineClient, InvalidRequest, ModelInfo, NotFound

from .schema import NamedRequest

_TAG = ":latest"


def find(engine: EngineClient, name: str) -> ModelInfo:
    """Return the model served under a name, with the default tag or without it. Raises NotFound."""
    try:
        return engine.model(name)
    except NotFound as error:
        other = name.removesuffix(_TAG) if name.endswith(_TAG) else name + _TAG
        try:
            return engine.model(other)
        except NotFound:
            raise NotFound(error.message, param="model") from error


def named(engine: EngineClient, body: NamedRequest) -> ModelInfo:
    """Return the model that ``model``, or its older name ``name``, asks for. Raises InvalidRequest or NotFound."""
    name = body.model or body.name
    if not name:
        raise InvalidRequest("model: this field is required.", param="model")
    return find(engine, name)
