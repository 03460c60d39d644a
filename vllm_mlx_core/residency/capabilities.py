"""What a loaded model can do, as clients are told."""

from __future__ import annotations

from typing import Any

from vllm_mlx_core.api import Chat, Infill, InvalidRequest, ParserChoice, TextProcessor
from vllm_mlx_core.engine.messages import EngineReady


def capabilities(processor: TextProcessor, parsers: ParserChoice, ready: EngineReady) -> dict[str, Any]:
    """Return ``ModelInfo.capabilities``. Renders a greeting and an empty gap to see whether the model has the forms."""
    chat = _can_chat(processor)
    return {
        "completion": True,
        "chat": chat,
        "tools": chat and parsers.tool is not None,
        "reasoning": chat and parsers.reasoning is not None,
        "infill": _can_infill(processor),
        "vision": False,
        "serving_mode": ready.mode,
        "serving_mode_reason": ready.mode_reason,
    }


def _can_chat(processor: TextProcessor) -> bool:
    try:
        processor.render(Chat(messages=[{"role": "user", "content": "Hello"}]))
    except InvalidRequest:
        return False
    return True


def _can_infill(processor: TextProcessor) -> bool:
    infill = getattr(processor, "infill", None)
    return infill is not None and infill(Infill(prefix="", suffix="")) is not None
