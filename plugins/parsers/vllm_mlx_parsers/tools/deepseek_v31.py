"""DeepSeek V3.1: calls between tokens, with nothing around the arguments."""

from __future__ import annotations

from .deepseek_v3 import DeepSeekV3ToolParser


class DeepSeekV31ToolParser(DeepSeekV3ToolParser):
    """The name, a separator and the arguments. Also reads the form of V3, with a type and a code fence."""

    families = "DeepSeek V3.1"
    sample = (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
        '{"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    )
