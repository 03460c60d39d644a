from __future__ import annotations

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, Tool, ToolCallArguments
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.minimax_m3 import MiniMaxM3ToolParser

M = "]<]minimax[>["
POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "label": {"type": "string"}}}
TOOL = Tool(
    "f",
    parameters={
        "properties": {
            "q": {"type": "string"},
            "n": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "points": {"type": "array", "items": POINT},
            "at": POINT,
            "note": {"type": ["string", "null"]},
        }
    },
)


def element(name: str, *body: str) -> str:
    return f"{M}<{name}>{''.join(body)}{M}</{name}>"


def invoke(name: str, *arguments: str) -> str:
    return f'{M}<invoke name="{name}">{"".join(arguments)}{M}</invoke>\n'


def block(*invokes: str) -> str:
    return f"{M}<tool_call>\n{''.join(invokes)}{M}</tool_call>"


def parser(*tools: Tool) -> MiniMaxM3ToolParser:
    return MiniMaxM3ToolParser(ParserContext(tools=tools or (TOOL,)))


class TestMiniMaxM3Conforms(ToolParserSuite):
    parser = MiniMaxM3ToolParser
    tools = (TOOL,)
    samples = (
        ToolSample(MiniMaxM3ToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(
            f"Hi\n{block(invoke('f', element('n', '018956')), invoke('ping'))}\nbye",
            "Hi\nbye",
            [("f", {"n": 18956}), ("ping", {})],
        ),
        ToolSample(
            block(invoke("f", element("q", '\n é "a" \\ <b></q> '), element("n", " 5 "))),
            calls=[("f", {"q": '\n é "a" \\ <b></q> ', "n": 5})],
        ),
        ToolSample(
            block(
                invoke(
                    "f", element("points", element("item", element("x", "1")), element("item", element("label", "2")))
                )
            ),
            calls=[("f", {"points": [{"x": 1}, {"label": "2"}]})],
        ),
        ToolSample(
            block(invoke("f", element("tags", "1"), element("tags", "b"), element("note", "null"))),
            calls=[("f", {"tags": ["1", "b"], "note": None})],
        ),
        ToolSample(
            block(invoke("g", element("a", element("b", "1"), element("b", "[2]")))),
            calls=[("g", {"a": {"b": ["1", [2]]}})],
        ),
        ToolSample(
            f'{M}<tool_call>{M}<invoke name="f">{M}<q>a</q>{M}<n>5</n>{M}</invoke>{M}</tool_call>',
            calls=[("f", {"q": "a", "n": 5})],
        ),
        ToolSample(f"<tool_call>\n{invoke('f', element('n', '5'))}{M}</tool_call>", calls=[("f", {"n": 5})]),
        ToolSample(f"Say <tool_call> or {M} ok", f"Say <tool_call> or {M} ok", literal=True),
    )


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        (element("at", element("x", "7"), element("label", "7")), {"at": {"x": 7, "label": "7"}}),
        (element("at", '{"x": 7}'), {"at": {"x": 7}}),
        (element("at", ""), {"at": {}}),
        (element("tags", ""), {"tags": []}),
        (element("tags", "one"), {"tags": ["one"]}),
        (element("tags", '["a", "b"]'), {"tags": ["a", "b"]}),
        (element("tags", element("item", "5"), "\n", element("item", "6")), {"tags": ["5", "6"]}),
        (element("points", element("x", "1")), {"points": [{"x": 1}]}),
        (element("points", element("x", "1")) + element("points", element("x", "2")), {"points": [{"x": 1}, {"x": 2}]}),
        (element("q", "a") + element("n", "1") + element("q", "b"), {"q": "a", "n": 1}),
        (element("n", "ten"), {"n": "ten"}),
        (element("new", element("item", element("item", "1"), element("item", "x"))), {"new": [["1", "x"]]}),
        (element("new", "[1, 2]"), {"new": [1, 2]}),
    ],
)
def test_elements_become_the_values_that_the_schema_says_at_any_depth(run, width, body, arguments):
    assert fold(run(parser(), block(invoke("f", body)), width)).calls == [("f", arguments)]


def test_an_object_may_have_a_member_called_item(run, width):
    tool = Tool("f", parameters={"properties": {"a": {"properties": {"item": {"type": "integer"}}}}})
    text = block(invoke("f", element("a", element("item", "5"))))
    assert fold(run(parser(tool), text, width)).calls == [("f", {"a": {"item": 5}})]


@pytest.mark.parametrize("body", [f"{M}<a>x{M}</b>", f"{M}<a>text{element('b', 'c')}{M}</a>", f"{M}<>", "x"])
def test_elements_that_do_not_close_make_no_call(run, width, body):
    assert fold(run(parser(), block(invoke("f", body)), width)).calls == []


def test_the_end_of_a_block_that_never_began_is_dropped(run, width):
    assert fold(run(parser(), f"a{M}</tool_call> b", width)).content == "a b"


def test_elements_nested_without_end_make_no_call(run):
    deep = f"{M}<a>" * 1000 + f"{M}</a>" * 1000
    assert fold(run(parser(), block(invoke("f", deep)), 10_000)).calls == []


def test_text_streams_while_it_is_generated():
    stream = parser()
    stream.feed(Chunk(f'{M}<tool_call>{M}<invoke name="f">{M}<q>a'))
    assert list(stream.feed(Chunk("b\n"))) == [ToolCallArguments(0, "b\\n")]
