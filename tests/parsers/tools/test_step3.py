from __future__ import annotations

from vllm_mlx_core.api import ParserContext, Tool
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.step3 import Step3ToolParser

TOOL = Tool("search", parameters={"properties": {"q": {"type": "string"}, "n": {"type": "integer"}}})


def invoke(name: str, **values: str) -> str:
    parameters = "".join(
        f'<steptml:parameter name="{key}">{value}</steptml:parameter>' for key, value in values.items()
    )
    return f'<steptml:invoke name="{name}">{parameters}</steptml:invoke>'


def call(body: str, head: str = "function<｜tool_sep｜>") -> str:
    return f"<｜tool_call_begin｜>{head}{body}<｜tool_call_end｜>"


def block(*calls: str) -> str:
    return "<｜tool_calls_begin｜>{}<｜tool_calls_end｜>".format("\n".join(calls))


SEARCH = invoke("search", q=" a ", n=" 5 ")
CALL = ("search", {"q": " a ", "n": 5})


class TestStep3Conforms(ToolParserSuite):
    parser = Step3ToolParser
    tools = (TOOL,)
    extra_markers = ("<steptml:invoke", "</steptml:invoke>", "<steptml:parameter", "</steptml:parameter>")
    samples = (
        ToolSample(Step3ToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(f"Hi\n{block(call(SEARCH), call(invoke('ping')))}\n\nbye", "Hi\nbye", [CALL, ("ping", {})]),
        ToolSample(block(call(SEARCH, "function<｜tool_sep｜>search\n")), calls=[CALL]),
        ToolSample(block(call(SEARCH, "")), calls=[CALL]),
        ToolSample(call(SEARCH) + call(SEARCH), calls=[CALL, CALL]),
        ToolSample(f"Hi {SEARCH} bye", "Hi bye", [CALL]),
        ToolSample(block(call(SEARCH)).removesuffix("<｜tool_calls_end｜>"), calls=[CALL]),
        ToolSample(
            block(call(invoke("search", q="if a < b: \n</steptml:parameter> é"))),
            calls=[("search", {"q": "if a < b: \n</steptml:parameter> é"})],
        ),
        ToolSample("a <｜tool_calls_begin｜>, b", "a <｜tool_calls_begin｜>, b", literal=True),
    )


def test_white_space_of_text_is_kept_and_that_of_other_types_trimmed(run, width):
    text = block(
        call(
            '<steptml:invoke name="search">\n<steptml:parameter name="q">  x\n</steptml:parameter>\n'
            '<steptml:parameter name="n">\n 7 </steptml:parameter>\n</steptml:invoke>'
        )
    )
    folded = fold(run(Step3ToolParser(ParserContext(tools=[TOOL])), text, width))
    assert folded.calls == [("search", {"q": "  x\n", "n": 7})]
