from __future__ import annotations

from vllm_mlx_core.api import ParserContext
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.ernie45 import Ernie45ToolParser

PARIS = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
WEATHER = ("get_weather", {"city": "Paris"})


class TestErnie45Conforms(ToolParserSuite):
    parser = Ernie45ToolParser
    samples = (
        ToolSample(PARIS, calls=[WEATHER]),
        ToolSample(f"{PARIS}\n\n{PARIS}\n", calls=[WEATHER, WEATHER]),
        ToolSample(f"\n\n<response>\nLet me look.\n</response>\n{PARIS}\n", "Let me look.", [WEATHER]),
        ToolSample(f"Let me look.\n{PARIS}", "Let me look.", [WEATHER]),
        ToolSample(f"One\n{PARIS}\n<response>\ntwo\n</response>\n", "One\ntwo", [WEATHER]),
        ToolSample("<response>\nIt is sunny.\n\n\tIn Paris. \n</response>\n", "It is sunny.\n\n\tIn Paris."),
        ToolSample("<response></response>"),
        ToolSample("<response>\nNever closed", "Never closed"),
        ToolSample("Write `<response>` there.", "Write `<response>` there.", literal=True),
        ToolSample("```xml\n<response>\n</response>\n```", "```xml\n<response>\n</response>\n```", literal=True),
        ToolSample('<tool_call>{"name": "f"}</tool_call>', calls=[("f", {})]),
        ToolSample(
            '<tool_call>{"name": "f", "arguments": {"s": "</response> 北京"}}</tool_call>',
            calls=[("f", {"s": "</response> 北京"})],
        ),
        ToolSample("<tool_call>no</tool_call>", "<tool_call>no</tool_call>", literal=True),
    )


def test_the_tags_around_the_answer_are_not_content(run, width):
    text = "\n\n<response>\nThe answer\n</response>\n"
    assert fold(run(Ernie45ToolParser(ParserContext()), text, width)).content == "The answer"
