"""One response that is being made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_mlx_core.api import EngineFailed, Output, OutputStream

from .recorder import Recorder
from .response import finished


@dataclass(slots=True)
class Job:
    """What was asked (``response`` before the answer, ``items`` of the input) and what has come of it."""

    owner: str
    response: dict[str, Any]
    items: list[dict[str, Any]]
    recorder: Recorder
    outputs: OutputStream
    _final: dict[str, Any] | None = field(default=None)

    @property
    def id(self) -> str:
        """The response's id."""
        return str(self.response["id"])

    def conclude(self) -> dict[str, Any]:
        """Return the finished response, the same one each time. Raises EngineFailed if the answer never ended."""
        if self._final is None:
            recorder = self.recorder
            if recorder.finish is None:
                raise EngineFailed("The engine stopped before the answer was complete.")
            cut_off = recorder.finish == "length"
            self._final = finished(self.response, recorder.output, recorder.usage, cut_off=cut_off)
        return self._final

    async def read(self) -> None:
        """Record the whole answer. Raises RequestError."""
        async for step in self.outputs:
            for _ in self.recorder.add(step):
                pass


class SavingOutputs:
    """Outputs that are followed by ``save``, so that a response is stored before its client hears of its end."""

    def __init__(self, outputs: OutputStream, save: Callable[[], Awaitable[None]]) -> None:
        self._outputs = outputs
        self._save = save

    @property
    def prompt_tokens(self) -> int:
        """Length of the rendered prompt."""
        return self._outputs.prompt_tokens

    async def __aiter__(self) -> AsyncIterator[Sequence[Output]]:
        """Iterate over the outputs; what ``save`` raises comes after the last."""
        async for step in self._outputs:
            yield step
        await self._save()

    async def aclose(self) -> None:
        """Abort whatever still runs."""
        await self._outputs.aclose()
