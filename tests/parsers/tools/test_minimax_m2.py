from __future__ import annotations

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, Tool, ToolCallArguments
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.minimax_m2 import MiniMaxM2ToolParser

TOOL = Tool("edit", parameters={"properties": {"text": {"type": "string"}, "line": {"type": "integer"}}})


def invoke(name: str, **values: str) -> str:
    parameters = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in values.items())
    return f'<invoke name="{name}">\n{parameters}</invoke>'


def block(*invokes: str) -> str:
    return "<minimax:tool_call>\n{}\n</minimax:tool_call>".format("\n".join(invokes))


def parser(*tools: Tool) -> MiniMaxM2ToolParser:
    return MiniMaxM2ToolParser(ParserContext(tools=tools or (TOOL,)))


EDIT = block(invoke("edit", text="a", line="3"))
EDIT_CALL = ("edit", {"text": "a", "line": 3})


class TestMiniMaxM2Conforms(ToolParserSuite):
    parser = MiniMaxM2ToolParser
    tools = (TOOL,)
    extra_markers = ("<invoke", "</invoke>", "<parameter", "</parameter>")
    samples = (
        ToolSample(MiniMaxM2ToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(f"Hi\n\n{EDIT} \n{EDIT}\n\nbye\n", "Hi\n\nbye\n", [EDIT_CALL, EDIT_CALL]),
        ToolSample(
            block(invoke("edit", text="\n  keep\n"), invoke("ping")),
            calls=[("edit", {"text": "\n  keep\n"}), ("ping", {})],
        ),
        ToolSample(block(invoke("edit", text="")), calls=[("edit", {"text": ""})]),
        ToolSample(block(invoke("edit", line=" 3\n")), calls=[("edit", {"line": 3})]),
        ToolSample(block(invoke("edit", text='é "q" \\ {<b>}')), calls=[("edit", {"text": 'é "q" \\ {<b>}'})]),
        ToolSample(
            block(invoke("edit", text='x </parameter> y <parameter name="text"> <invoke')),
            calls=[("edit", {"text": 'x </parameter> y <parameter name="text"> <invoke'})],
        ),
        ToolSample(
            block('<invoke name="edit"><parameter name="line">4</parameter><parameter name="text">a</invoke>'),
            calls=[("edit", {"line": 4, "text": "a"})],
        ),
        ToolSample(
            block(
                '<invoke name="edit"><parameter name="text">a <parameter name="x"> b<parameter name="line">4</invoke>'
            ),
            calls=[("edit", {"text": 'a <parameter name="x"> b', "line": 4})],
        ),
        ToolSample(block(invoke("f", a='{"b": [1]}', c="2")), calls=[("f", {"a": {"b": [1]}, "c": "2"})]),
        ToolSample(block("<invoke name='f' >\n</invoke>"), calls=[("f", {})]),
        ToolSample(EDIT.removesuffix("\n</minimax:tool_call>"), calls=[EDIT_CALL]),
        ToolSample(block("no call"), block("no call"), literal=True),
        ToolSample(block("<invoke>x"), block("<invoke>x"), literal=True),
        ToolSample("`<minimax:tool_call>` <invoke>", "`<minimax:tool_call>` <invoke>", literal=True),
    )


def test_all_invokes_of_one_wrapper_are_calls_and_white_space_of_values_is_kept(run, width):
    text = block(invoke("edit", text="\n  keep\n"), invoke("edit", text=" a "))
    assert fold(run(parser(), text, width)).calls == [("edit", {"text": "\n  keep\n"}), ("edit", {"text": " a "})]


@pytest.mark.parametrize(("text", "value"), [("2026-01-15", "2026-01-15"), ("018", 18), ("1.0", 1)])
def test_a_value_that_does_not_fit_its_type_stays_a_string(run, width, text, value):
    assert fold(run(parser(), block(invoke("edit", line=text)), width)).calls == [("edit", {"line": value})]


def test_text_streams_while_it_is_generated():
    stream = parser()
    events = list(stream.feed(Chunk('<minimax:tool_call><invoke name="edit"><parameter name="text">\nab')))
    assert fold(events).unfinished == [("edit", '{"text":"\\nab')]
    assert list(stream.feed(Chunk("c\n"))) == [ToolCallArguments(0, "c\\n")]
