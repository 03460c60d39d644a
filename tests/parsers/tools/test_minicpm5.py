from __future__ import annotations

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, Tool, ToolCallArguments
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.minicpm5 import MiniCPM5ToolParser

EDIT = Tool("edit", parameters={"properties": {"text": {"type": "string"}, "line": {"type": "integer"}}})
PING, FIND = Tool("ping"), Tool("find", parameters={"properties": {"where": {"type": "object"}}})
WEATHER = Tool("get_weather", parameters={"properties": {"city": {"type": "string"}}})
TOOLS = (EDIT, PING, FIND, WEATHER)


def call(name: str, **values: str) -> str:
    parameters = "".join(f'<param name="{key}">{value}</param>' for key, value in values.items())
    return f'<function name="{name}">{parameters}</function>'


def cdata(text: str) -> str:
    return f"<![CDATA[{text}]]>"


def parser() -> MiniCPM5ToolParser:
    return MiniCPM5ToolParser(ParserContext(tools=TOOLS))


class TestMiniCPM5Conforms(ToolParserSuite):
    parser = MiniCPM5ToolParser
    tools = TOOLS
    bare = True
    extra_markers = ("<function", "</function>", "<param", "</param>", "<![CDATA[", "]]>")
    samples = (
        ToolSample(MiniCPM5ToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(
            f"Hi\n\n{call('edit', text=' a ', line='3')}\n{call('ping')}\nbye",
            "Hi\n\nbye",
            [("edit", {"text": " a ", "line": 3}), ("ping", {})],
        ),
        ToolSample(call("edit", text=cdata("a <b>\n & c")), calls=[("edit", {"text": "a <b>\n & c"})]),
        ToolSample(
            call("edit", text=cdata("</param> ]]> <param name='x'> é"), line=cdata("4")),
            calls=[("edit", {"text": "</param> ]]> <param name='x'> é", "line": 4})],
        ),
        ToolSample(call("edit", text="x </param> y"), calls=[("edit", {"text": "x </param> y"})]),
        ToolSample(call("find", where="{'a': [1, None]}"), calls=[("find", {"where": {"a": [1, None]}})]),
        ToolSample("<function name='ping' >\n</function>", calls=[("ping", {})]),
        ToolSample(call("other", a="1"), call("other", a="1"), literal=True),
        ToolSample('A <function name="ping"> tag.', 'A <function name="ping"> tag.', literal=True),
        ToolSample(f"`{call('ping')}`", f"`{call('ping')}`", literal=True),
    )


def test_a_value_in_cdata_ends_only_with_its_parameter(run, width):
    code = '<function name="ping"></function>\n</param></function>\nx = a[b[0]]>1'
    assert fold(run(parser(), call("edit", text=cdata(code)), width)).calls == [("edit", {"text": code})]


@pytest.mark.parametrize("opening", ["", "<![CDATA["])
def test_text_streams_while_it_is_generated(opening):
    stream = parser()
    stream.feed(Chunk(f'<function name="edit"><param name="text">{opening}ab'))
    assert list(stream.feed(Chunk("c\n"))) == [ToolCallArguments(0, "c\\n")]


def test_a_value_in_cdata_that_the_stream_cuts_off_is_not_complete(run, width):
    text = call("edit", text=cdata("abc")).removesuffix("]]></param></function>")
    folded = fold(run(parser(), text, width))
    assert (folded.calls, folded.unfinished) == ([], [("edit", '{"text":"abc')])
