"""How long the parts of a request take, as they are told to the client."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from vllm_mlx_core.api import Output, OutputStream, Usage

Clock = Callable[[], int]
"""Gives nanoseconds that never run backwards."""


def now() -> str:
    """Return the time of day as Ollama writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class TimedOutputs:
    """The outputs of a request (an ``api.OutputStream``), and when the first of them came.

    ``started`` is when the request arrived. What comes before the first output is waiting and reading the prompt.
    """

    def __init__(self, outputs: OutputStream, started: int, clock: Clock = time.monotonic_ns) -> None:
        self._outputs = outputs
        self._started = started
        self._clock = clock
        self._first: int | None = None

    @property
    def prompt_tokens(self) -> int:
        """Length of the rendered prompt."""
        return self._outputs.prompt_tokens

    async def __aiter__(self) -> AsyncIterator[Sequence[Output]]:
        """Iterate over what each engine step added. Raises what the engine's own outputs raise."""
        async for step in self._outputs:
            if self._first is None:
                self._first = self._clock()
            yield step

    async def aclose(self) -> None:
        """Abort whatever still runs and free it."""
        await self._outputs.aclose()

    def metrics(self, usage: Usage) -> dict[str, Any]:
        """Return counts, and durations in nanoseconds up to now. Nothing is ever loaded, so that took no time."""
        ended = self._clock()
        first = ended if self._first is None else self._first
        return {
            "total_duration": ended - self._started,
            "load_duration": 0,
            "prompt_eval_count": self.prompt_tokens,
            "prompt_eval_duration": first - self._started,
            "eval_count": usage.completion_tokens,
            "eval_duration": ended - first,
        }
