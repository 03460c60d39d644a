"""The engine as batches see it: what they ask for waits while anything else does."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from vllm_mlx_core.api import IDLE_PRIORITY, EngineClient, GenerateRequest, OutputStream


def idle(engine: EngineClient, timeout_s: float) -> EngineClient:
    """Return ``engine`` for one line, which has ``timeout_s`` left."""
    return cast(EngineClient, _IdleEngine(engine, timeout_s))


class _IdleEngine:
    def __init__(self, engine: EngineClient, timeout_s: float) -> None:
        self._engine = engine
        self._timeout_s = timeout_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)  # all but generate is the engine's own

    async def generate(self, request: GenerateRequest) -> OutputStream:
        return await self._engine.generate(
            msgspec.structs.replace(request, priority=IDLE_PRIORITY, timeout_s=self._timeout_s)
        )
