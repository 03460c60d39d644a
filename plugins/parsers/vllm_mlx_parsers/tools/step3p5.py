"""The calls of Step-3.5."""

from __future__ import annotations

from .qwen3_coder import Qwen3CoderToolParser


class Step3p5ToolParser(Qwen3CoderToolParser):
    """As Qwen3-Coder writes them, often without the wrapper."""

    families = "Step-3.5"
