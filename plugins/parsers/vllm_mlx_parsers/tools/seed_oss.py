"""The calls of Seed-OSS."""

from __future__ import annotations

from .qwen3_coder import FunctionTagToolParser


class SeedOSSToolParser(FunctionTagToolParser):
    """Like Qwen3-Coder's, inside ``<seed:tool_call>``, and with values that usually stand on the line of their tags."""

    families = "Seed-OSS"
    sample = (
        "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n</function>\n</seed:tool_call>"
    )
    start = "<seed:tool_call>"
    end = "</seed:tool_call>"
    inline = True
