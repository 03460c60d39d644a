from __future__ import annotations

from vllm_mlx_core.api import ParserContext, Tool
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.seed_oss import SeedOSSToolParser

TOOL = Tool(
    "get_weather", parameters={"properties": {"city": {"type": "string"}, "days": {"type": ["integer", "null"]}}}
)


def block(body: str) -> str:
    return f"<seed:tool_call>\n{body}\n</seed:tool_call>"


PARIS = SeedOSSToolParser.sample
PARIS_CALL = ("get_weather", {"city": "Paris"})


class TestSeedOSSConforms(ToolParserSuite):
    parser = SeedOSSToolParser
    tools = (TOOL,)
    extra_markers = ("<function=", "</function>", "<parameter=", "</parameter>")
    samples = (
        ToolSample(PARIS, calls=[PARIS_CALL]),
        ToolSample(f"Hi\n\n{PARIS}\n{PARIS}\n\nbye", "Hi\n\nbye", [PARIS_CALL, PARIS_CALL]),
        ToolSample(
            block(
                "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>3</parameter>\n</function>"
            ),
            calls=[("get_weather", {"city": "Paris", "days": 3})],
        ),
        ToolSample(
            block("<function=get_weather>\n<parameter=days>None</parameter>\n</function>"),
            calls=[("get_weather", {"days": None})],
        ),
        ToolSample(block("<function=ping>\n</function>"), calls=[("ping", {})]),
        ToolSample(
            block(
                "<function=f>\n<parameter=a>{'b': [True, 1.5]}</parameter>\n<parameter=c>x\ny</parameter>\n</function>"
            ),
            calls=[("f", {"a": {"b": [True, 1.5]}, "c": "x\ny"})],
        ),
        ToolSample(
            block("<function=get_weather>\n<parameter=city>a </parameter> b\n</parameter>\n</function>"),
            calls=[("get_weather", {"city": "a </parameter> b\n"})],
        ),
        ToolSample(block("nothing"), block("nothing"), literal=True),
    )


def test_a_quoted_tag_stays_text_and_the_call_after_it_is_a_call(run, width):
    text = (
        "use <seed:tool_call> maybe <seed:tool_call>\n<function=get_weather>\n"
        "<parameter=location>Barcelona, Spain</parameter>\n</function>\n</seed:tool_call>"
    )
    folded = fold(run(SeedOSSToolParser(ParserContext(tools=[TOOL])), text, width))
    assert folded.content == "use <seed:tool_call> maybe"
    assert folded.calls == [("get_weather", {"location": "Barcelona, Spain"})]
