"""The models of one process under the names clients use: what front-ends call the engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from vllm_mlx_core.api import ActiveRequest, GenerateRequest, ModelInfo, ModelStats, NotFound, RenderedPrompt

from .loader import LoadedModel
from .warm_up import WarmUp

MAX_NAME_SHOWN = 100


class ModelPool:
    """The loaded models (``api.EngineClient``), the default one first. Event-loop thread, but for ``close``."""

    def __init__(self, models: Sequence[LoadedModel]) -> None:
        self._models = list(models)
        self._by_name: dict[str, LoadedModel] = {}
        for model in self._models:
            for name in (model.info.id, *model.info.aliases):
                self._by_name.setdefault(name, model)
        self._warm_up = _warm_up(self._models)

    @asynccontextmanager
    async def background(self) -> AsyncIterator[None]:
        """Do meanwhile what nobody waits for: the server enters this when it starts and leaves it when it stops."""
        if self._warm_up is None:
            yield
            return
        self._warm_up.start()
        try:
            yield
        finally:
            await self._warm_up.stop()

    def models(self) -> Sequence[ModelInfo]:
        """Return what is served, the default model first."""
        return [model.info for model in self._models]

    def model(self, name: str) -> ModelInfo:
        """Return the model served under ``name``. Raises NotFound."""
        return self._find(name).info

    async def generate(self, request: GenerateRequest) -> Any:
        """Check, render and queue a request; see ``ModelClient.generate``."""
        return await self._find(request.model).client.generate(request)

    async def render(self, request: GenerateRequest) -> RenderedPrompt:
        """Render a request's prompt without generating."""
        return await self._find(request.model).client.render(request)

    def detokenize(self, model: str, token_ids: Sequence[int]) -> str:
        """Return the text of token ids. Raises NotFound or InvalidRequest."""
        return self._find(model).client.detokenize(token_ids)

    def active_requests(self) -> Sequence[ActiveRequest]:
        """Return what runs and waits, the oldest first."""
        requests = [request for model in self._models for request in model.client.active_requests()]
        return sorted(requests, key=lambda request: request.age_s, reverse=True)

    def cancel(self, request_id: str, *, user: str | None = None) -> bool:
        """End the requests with this id; see ``api.EngineClient``."""
        return sum(model.client.cancel(request_id, user=user) for model in self._models) > 0

    async def stats(self) -> Sequence[ModelStats]:
        """Ask every model's engine what it holds. Raises EngineFailed."""
        found = [await model.client.stats() for model in self._models]
        if self._warm_up is not None:
            found[0] = msgspec.structs.replace(found[0], warm_up=self._warm_up.stats())
        return found

    async def clear_cache(self) -> Mapping[str, int]:
        """Clear every model's prefix cache; return the bytes freed by model. Raises EngineFailed.

        What is to be warm is then read again, in the background.
        """
        freed = {model.info.id: await model.client.clear_cache() for model in self._models}
        if self._warm_up is not None:
            self._warm_up.start()
        return freed

    def health(self) -> Mapping[str, Any]:
        """Return the status of the whole and of each model."""
        models = {model.info.id: model.client.health() for model in self._models}
        healthy = all(each["status"] == "ok" for each in models.values())
        return {"status": "ok" if healthy else "error", "models": models}

    def close(self) -> None:
        """Stop every engine and free the models. Blocks; any thread but the event loop's."""
        for model in self._models:
            model.client.close()

    def _find(self, name: str) -> LoadedModel:
        found = self._by_name.get(name)
        if found is None:
            known = ", ".join(repr(model.info.id) for model in self._models)
            shown = name if len(name) <= MAX_NAME_SHOWN else f"{name[:MAX_NAME_SHOWN]}…"
            raise NotFound(
                f"The model {shown!r} does not exist. Served here: {known}.", param="model", code="model_not_found"
            )
        return found


def _warm_up(models: Sequence[LoadedModel]) -> WarmUp | None:
    """Return what keeps the default model's prefix cache warm, if its settings ask for it."""
    return WarmUp(models[0].client) if models and models[0].client.settings.warm_prompts else None
