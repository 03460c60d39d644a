from __future__ import annotations

from vllm_mlx_core.api import ParserContext, Tool
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.poolside_v1 import PoolsideV1ToolParser

LOOKUP = "<tool_call>lookup<arg_key>repo</arg_key><arg_value>demo-app</arg_value></tool_call>"
CALL = ("lookup", {"repo": "demo-app"})


class TestPoolsideV1Conforms(ToolParserSuite):
    parser = PoolsideV1ToolParser
    tools = (Tool("lookup", parameters={"properties": {"repo": {"type": "string"}}}),)
    samples = (
        ToolSample(PoolsideV1ToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(f"Hi\n{LOOKUP}\n{LOOKUP}\n</assistant>\n", "Hi", [CALL, CALL]),
        ToolSample("Hi</assistant>", "Hi"),
        ToolSample(LOOKUP.replace("demo-app", "\n  x \n"), calls=[("lookup", {"repo": "\n  x \n"})]),
        ToolSample(
            "<tool_call>lookup\n<arg_key>repo</arg_key>\n<arg_value>a</arg_value>\n</tool_call>\n",
            calls=[("lookup", {"repo": "a"})],
        ),
        ToolSample("say </assistant> twice", "say </assistant> twice", literal=True),
    )


def test_the_call_is_read_and_the_end_of_the_turn_stops_the_completion(run, width):
    assert fold(run(PoolsideV1ToolParser(ParserContext()), LOOKUP, width)).calls == [CALL]
    assert PoolsideV1ToolParser.stop_tokens == ("</assistant>",)
