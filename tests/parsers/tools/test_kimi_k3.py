from __future__ import annotations

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, Tool, ToolCallArguments
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.kimi_k3 import KimiK3ToolParser

TOOL = Tool("search", parameters={"properties": {"q": {"type": "string"}, "n": {"type": "integer"}}})
END = "<|close|>message<|sep|><|end_of_msg|>"


def segment(name: str, body: str, attributes: str = "") -> str:
    return f"<|open|>{name}{attributes}<|sep|>{body}<|close|>{name}<|sep|>"


def argument(key: str, value: str, kind: str) -> str:
    return segment("argument", value, f' key="{key}" type="{kind}"')


def call(name: str, *arguments: str, index: int = 1) -> str:
    return segment("call", "".join(arguments), f' tool="{name}" index="{index}"')


def parser() -> KimiK3ToolParser:
    return KimiK3ToolParser(ParserContext(tools=[TOOL]))


SEARCH = call("search", argument("q", "cats", "string"), argument("n", "5", "number"))
CALL = ("search", {"q": "cats", "n": 5})


class TestKimiK3Conforms(ToolParserSuite):
    parser = KimiK3ToolParser
    tools = (TOOL,)
    extra_markers = ("message", "response", "tools")
    samples = (
        ToolSample(KimiK3ToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample("Hello<|close|>message<|sep|>", "Hello"),
        ToolSample(f"{segment('response', 'Hello ')}{END}", "Hello "),
        ToolSample(
            f"Hi<|close|>response<|sep|>{segment('tools', call('f') + call('g', index=2))}",
            "Hi",
            [("f", {}), ("g", {})],
        ),
        ToolSample(SEARCH, calls=[CALL]),
        ToolSample(
            call("f", segment("json", '{"a": {"b": [1]}, "c": "</x>"}', ' type="object"')),
            calls=[("f", {"a": {"b": [1]}, "c": "</x>"})],
        ),
        ToolSample(
            call("f", argument("a", '{"b": null}', "object"), argument("c", "null", "null")),
            calls=[("f", {"a": {"b": None}, "c": None})],
        ),
        ToolSample(call("f", argument("a&amp;&quot;b&quot;", "5", "string")), calls=[("f", {'a&"b"': "5"})]),
        ToolSample(
            call("search", argument("q", '\n é "x" \\ <a> {"b"}\n', "string")),
            calls=[("search", {"q": '\n é "x" \\ <a> {"b"}\n'})],
        ),
        ToolSample(
            call("search", argument("q", "a <|close|>argument<|sep|> b", "string")),
            calls=[("search", {"q": "a <|close|>argument<|sep|> b"})],
        ),
        ToolSample("```\n<|close|>message<|sep|>", "```\n"),
    )


@pytest.mark.parametrize("tail", ["<|close|>message<|sep|>", f"<|close|>response<|sep|>{END}", "<|close|>mess"])
def test_the_end_of_the_message_never_reaches_the_client(run, width, tail):
    assert fold(run(parser(), f"Hello{tail}", width)).content == "Hello"


def test_arguments_stream_while_they_are_generated():
    stream = parser()
    stream.feed(Chunk('<|open|>call tool="search" index="1"<|sep|><|open|>argument key="q" type="string"<|sep|>a'))
    assert list(stream.feed(Chunk('b"'))) == [ToolCallArguments(0, 'b\\"')]
    stream = parser()
    stream.feed(Chunk('<|open|>call tool="search" index="1"<|sep|><|open|>json type="object"<|sep|>{"q": "a'))
    assert list(stream.feed(Chunk("b"))) == [ToolCallArguments(0, "b")]


@pytest.mark.parametrize(
    "body", ["<|open|>argument<|sep|>x", "<|open|>json<|sep|>[1]<|close|>json<|sep|>", "text", "<|open|>call x<|sep|>"]
)
def test_a_broken_call_never_ends(run, width, body):
    folded = fold(run(parser(), f'<|open|>call tool="f" index="1"<|sep|>{body}', width))
    assert folded.calls == []
