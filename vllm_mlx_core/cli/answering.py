"""What ``chat`` and ``generate`` ask for an answer, wherever the model runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from vllm_mlx_core.api import ReasoningDelta, TextDelta


class Finished(NamedTuple):
    """The answer is complete; ``reason`` is the protocol's finish reason."""

    reason: str


Piece: TypeAlias = TextDelta | ReasoningDelta | Finished


class Answerer(Protocol):
    """A model that answers conversations."""

    name: str

    def answer(self, messages: Sequence[Mapping[str, Any]]) -> AsyncGenerator[Piece, None]:
        """Answer ``messages``, piece by piece; closing the generator early stops the model. Raises VllmMlxError."""
        ...
