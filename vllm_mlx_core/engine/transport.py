"""What lies between a client and its engine: messages in, step results out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from .messages import Command, EngineReady, StepResult


class EngineTransport(Protocol):
    """An engine, wherever it lives. Methods may be called from any thread."""

    def start(self) -> Future[EngineReady]:
        """Begin to load; the future has the result, or the ModelError that prevented it. Called once."""
        ...

    def connect(self, on_step: Callable[[StepResult], None], on_end: Callable[[BaseException | None], None]) -> None:
        """Say who hears of every step's result, and of the end (with the exception that broke the engine, if any).

        Called once, before the first ``send``. Both callbacks run on a thread of the transport's.
        """
        ...

    def send(self, command: Command) -> None:
        """Hand over a command. Never blocks; ignored after the end."""
        ...

    def stop(self, timeout_s: float | None = None) -> None:
        """End the engine after its current step, fail what still runs, free the model, and wait for that."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether the engine still takes commands."""
        ...
