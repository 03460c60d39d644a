"""The engine as batches see it: what they ask for waits while anything else does, and takes few of the places."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import msgspec

from vllm_mlx_core.api import (
    IDLE_PRIORITY,
    EngineClient,
    GenerateRequest,
    InvalidRequest,
    Output,
    OutputStream,
    Overloaded,
    Settings,
)


class Places:
    """Completions that batches may have under way at one time.

    Half of those that an engine decodes together, as what runs is not stopped for who comes later, and a quarter of
    those that it takes.
    """

    def __init__(self, settings: Settings) -> None:
        engine = settings.engine
        self.total = max(1, min(engine.max_num_seqs // 2, (engine.max_num_seqs + engine.max_queue) // 4))
        self.taken = 0


def idle(engine: EngineClient, places: Places, timeout_s: float) -> EngineClient:
    """Return ``engine`` for one line, which has ``timeout_s`` left.

    Its ``generate`` raises Overloaded if other lines have the places, InvalidRequest if this line wants too many.
    """
    return cast(EngineClient, _IdleEngine(engine, places, timeout_s))


class _IdleEngine:
    def __init__(self, engine: EngineClient, places: Places, timeout_s: float) -> None:
        self._engine = engine
        self._places = places
        self._timeout_s = timeout_s
        self._wanted = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)  # all but generate is the engine's own

    async def generate(self, request: GenerateRequest) -> OutputStream:
        places = self._places
        self._wanted += request.n
        if self._wanted > places.total:
            raise InvalidRequest(f"n: a line of a batch may ask for {places.total} completions at most.", param="n")
        if places.taken + request.n > places.total:
            raise Overloaded("Other lines of batches are under way.")
        places.taken += request.n
        try:
            lowered = msgspec.structs.replace(request, priority=IDLE_PRIORITY, timeout_s=self._timeout_s)
            return _Placed(await self._engine.generate(lowered), places, request.n)
        except BaseException:
            places.taken -= request.n
            raise


class _Placed:
    """Outputs that give their places back when they are closed."""

    def __init__(self, outputs: OutputStream, places: Places, count: int) -> None:
        self._outputs = outputs
        self._places = places
        self._count = count

    @property
    def prompt_tokens(self) -> int:
        return self._outputs.prompt_tokens

    def __aiter__(self) -> AsyncIterator[Sequence[Output]]:
        return self._outputs.__aiter__()

    async def aclose(self) -> None:
        self._places.taken -= self._count
        self._count = 0
        await self._outputs.aclose()
