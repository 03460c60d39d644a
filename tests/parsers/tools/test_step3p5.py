from __future__ import annotations

from vllm_mlx_core.api import Tool
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.step3p5 import Step3p5ToolParser

FIRST = "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>"
CALL = ("get_weather", {"city": "Paris", "days": 3})


class TestStep3p5Conforms(ToolParserSuite):
    parser = Step3p5ToolParser
    tools = (Tool("get_weather", parameters={"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}),)
    bare = True
    extra_markers = ("<function=", "</function>", "<parameter=", "</parameter>")
    samples = (
        ToolSample(Step3p5ToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(f"Hi<tool_call>\n{FIRST}\n</tool_call><tool_call>\n{FIRST}\n</tool_call>", "Hi", [CALL, CALL]),
        ToolSample(f"Hi\n{FIRST}\n", "Hi", [CALL]),
        ToolSample(f"{FIRST}\n{FIRST}\n</tool_call>", calls=[CALL, CALL]),
        ToolSample(FIRST.replace("\n</parameter>\n<", "\n<"), calls=[CALL]),
    )
