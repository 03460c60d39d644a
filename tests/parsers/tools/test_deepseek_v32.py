from __future__ import annotations

import pytest

from vllm_mlx_core.api import ParserContext, Tool
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.deepseek_v32 import DeepSeekV32ToolParser

TOOL = Tool("search", parameters={"properties": {"q": {"type": "string"}, "n": {"type": "integer"}}})


def parameter(key: str, value: str, string: str) -> str:
    return f'<｜DSML｜parameter name="{key}" string="{string}">{value}</｜DSML｜parameter>\n'


def invoke(name: str, *parameters: str) -> str:
    return f'<｜DSML｜invoke name="{name}">\n{"".join(parameters)}</｜DSML｜invoke>\n'


def block(*invokes: str, word: str = "function_calls") -> str:
    return f"<｜DSML｜{word}>\n{''.join(invokes)}</｜DSML｜{word}>"


SEARCH = invoke("search", parameter("q", "cats", "true"), parameter("n", "5", "false"))
CALL = ("search", {"q": "cats", "n": 5})


class TestDeepSeekV32Conforms(ToolParserSuite):
    parser = DeepSeekV32ToolParser
    tools = (TOOL,)
    extra_markers = ("<｜DSML｜", "</｜DSML｜")
    samples = (
        ToolSample(DeepSeekV32ToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(f"Hi\n\n{block(SEARCH, SEARCH)}", "Hi", [CALL, CALL]),
        ToolSample(f"Hi\n\n{block(SEARCH, word='tool_calls')}\nbye", "Hi\n\nbye", [CALL]),
        ToolSample(block(invoke("ping", "\n"), word="tool_calls"), calls=[("ping", {})]),
        ToolSample(block(invoke("f", parameter("a", "5", "true"))), calls=[("f", {"a": "5"})]),
        ToolSample(
            block(invoke("f", parameter("a", '{"b": [1, null]}', "false"), parameter("c", "true", "false"))),
            calls=[("f", {"a": {"b": [1, None]}, "c": True})],
        ),
        ToolSample(block(invoke("f", parameter("a", '"x"', "false"))), calls=[("f", {"a": "x"})]),
        ToolSample(block(invoke("f", parameter("a", "not json", "false"))), calls=[("f", {"a": "not json"})]),
        ToolSample(
            block(invoke("search", parameter("q", "\n é </b> \\", "true"))), calls=[("search", {"q": "\n é </b> \\"})]
        ),
        ToolSample(
            block(invoke("search", parameter("q", "a </｜DSML｜parameter> b", "true"))),
            calls=[("search", {"q": "a </｜DSML｜parameter> b"})],
        ),
        ToolSample(block(SEARCH).removesuffix("</｜DSML｜function_calls>"), calls=[CALL]),
        ToolSample(SEARCH, calls=[CALL]),
        ToolSample("<｜DSML｜x y", "<｜DSML｜x y", literal=True),
    )


@pytest.mark.parametrize(
    ("key", "value", "string", "expected"),
    [
        ("n", "5", "true", 5),
        ("n", "five", "true", "five"),
        ("q", "5", "false", "5"),
        ("q", "null", "false", "null"),
        ("q", '"a\\nb"', "false", "a\nb"),
        ("new", "5", "true", "5"),
        ("new", "5", "false", 5),
    ],
)
def test_the_schema_decides_only_where_it_rules_out_what_the_parameter_says_of_itself(
    run, width, key, value, string, expected
):
    text = block(invoke("search", parameter(key, value, string)))
    folded = fold(run(DeepSeekV32ToolParser(ParserContext(tools=[TOOL])), text, width))
    assert folded.calls == [("search", {key: expected})]
