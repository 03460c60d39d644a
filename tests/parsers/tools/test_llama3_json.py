from __future__ import annotations

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, TextDelta, Tool, ToolCallArguments, ToolCallStart
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.llama3_json import Llama3JSONToolParser

TOOLS = (Tool("get_weather"), Tool("search"), Tool("Alice"))
PARIS = '{"name": "get_weather", "parameters": {"city": "Paris"}}'
SEARCH = '{"name": "search", "parameters": {"q": "x", "filters": {"lang": "en"}}}'
CALLS = [("get_weather", {"city": "Paris"}), ("search", {"q": "x", "filters": {"lang": "en"}})]


def parser(*tools: str) -> Llama3JSONToolParser:
    return Llama3JSONToolParser(ParserContext(tools=[Tool(name) for name in tools]))


class TestBareLlama3JSONConforms(ToolParserSuite):
    parser = Llama3JSONToolParser
    tools = TOOLS
    bare = True
    samples = (
        ToolSample(PARIS, calls=CALLS[:1]),
        ToolSample(f"{PARIS}; {SEARCH}", calls=CALLS),
        ToolSample(f"{PARIS};{SEARCH};", calls=CALLS),
        ToolSample(f"{PARIS}\n{SEARCH}<|eot_id|>", calls=CALLS),
        ToolSample(f"[{PARIS}, {SEARCH}]", calls=CALLS),
        ToolSample(f"Looking.\n{PARIS}", "Looking.", CALLS[:1]),
        ToolSample(f"One {PARIS} two\n{SEARCH}\n", "One two", CALLS),
        ToolSample('{"name": "search", "parameters": {}}', calls=[("search", {})]),
        ToolSample('{"type": "function", "name": "search", "parameters": null}', calls=[("search", {})]),
        ToolSample('{"arguments": {"a": "}\\n\\"北京"}, "name": "search"}', calls=[("search", {"a": '}\n"北京'})]),
        ToolSample('{"name": "search"}', '{"name": "search"}'),
        ToolSample('{"name": "Alice"}', '{"name": "Alice"}'),
        ToolSample('{"name": "other", "parameters": {}}', '{"name": "other", "parameters": {}}'),
        ToolSample('{"name": "search", "age": 5, "parameters": {}}', '{"name": "search", "age": 5, "parameters": {}}'),
        ToolSample(f'{{"result": [{PARIS}]}} ok', f'{{"result": [{PARIS}]}} ok'),
        ToolSample(f"```json\n{PARIS}\n```", f"```json\n{PARIS}\n```"),
        ToolSample(f"f({{}}) [1] {{x}} `{PARIS}`", f"f({{}}) [1] {{x}} `{PARIS}`"),
        ToolSample("All fine.<|eot_id|>", "All fine."),
    )


class TestMarkedLlama3JSONConforms(ToolParserSuite):
    parser = Llama3JSONToolParser
    tools = TOOLS
    extra_markers = ("<function=", "</function>")
    samples = (
        ToolSample(Llama3JSONToolParser.sample, calls=CALLS[:1], tools=()),
        ToolSample(f"<|python_tag|>{SEARCH}<|eom_id|>", calls=CALLS[1:]),
        ToolSample(f"<|python_tag|>{PARIS}; {SEARCH}<|eom_id|>", calls=CALLS),
        ToolSample(f"Hi <|python_tag|>{PARIS}<|eom_id|>", "Hi", CALLS[:1]),
        ToolSample('<|python_tag|>{"name": "f"}', calls=[("f", {})]),
        ToolSample(f"<|python_tag|>[{PARIS}]", calls=CALLS[:1]),
        ToolSample(
            '<|python_tag|>brave_search.call(query="a \\"b\\", c)")', calls=[("brave_search", {"query": 'a "b", c)'})]
        ),
        ToolSample("<|python_tag|>f.call(a=1, b = [True, None])<|eom_id|>", calls=[("f", {"a": 1, "b": [True, None]})]),
        ToolSample("<|python_tag|>f.call()", calls=[("f", {})]),
        ToolSample('<function=search>{"q": "</x>"}</function><|eom_id|>', calls=[("search", {"q": "</x>"})]),
        ToolSample('a<function=f>{"x": 1}</function> b <function=g></function>', "a b", [("f", {"x": 1}), ("g", {})]),
        ToolSample(
            '<|python_tag|>print("é")\nx = {}<|eom_id|>',
            calls=[("python", {"code": 'print("é")\nx = {}'})],
            tools=[Tool("python")],
        ),
        ToolSample("Use `<|python_tag|>` so.", "Use `<|python_tag|>` so.", literal=True),
    )


@pytest.mark.parametrize("tag", ["", "<|python_tag|>"])
@pytest.mark.parametrize("end", ["", "<|eom_id|>", "<|eot_id|>"])
def test_nested_parameters_are_read_to_their_end_with_and_without_the_tag(run, width, tag, end):
    folded = fold(run(parser("search"), f"{tag}{SEARCH}{end}", width))
    assert folded.calls == CALLS[1:]
    assert folded.content == ""


def test_text_after_a_call_is_content_and_no_token_shows(run, width):
    folded = fold(run(parser("search"), f"<|python_tag|>{SEARCH}\nThat is it.<|eot_id|>", width))
    assert folded.calls == CALLS[1:]
    assert folded.content == "That is it."


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name":"my-app","version":"1.0"}\n```',
        '{"name": "Alice"}',
        '{"name": "Alice", "age": 30}',
        '{"name": "Bob", "parameters": {}}',
        '{"person": {"name": "Alice", "parameters": {}}}',
        '[{"id": 1}, {"name": "Alice", "parameters": {}}]',
    ],
)
def test_json_that_only_looks_like_a_call_stays_content(run, width, text):
    folded = fold(run(parser("Alice", "my-app"), text, width))
    assert folded.content == text
    assert folded.calls == []


def test_json_that_is_no_call_streams():
    stream = parser("search")
    list(stream.feed(Chunk('{"answer": {"text": "It')))
    for piece in (" is", '", "call": {"name": "search", "parameters": {}', "}}}"):
        assert list(stream.feed(Chunk(piece))) == [TextDelta(piece)]


def test_arguments_stream_once_the_name_is_known():
    stream = parser("search")
    assert list(stream.feed(Chunk('{"name": "search"'))) == []
    start, arguments = stream.feed(Chunk(', "parameters": {"q": "a'))
    assert isinstance(start, ToolCallStart)
    assert arguments == ToolCallArguments(0, '{"q": "a')


def test_code_after_the_tag_calls_the_code_tool_if_there_is_one(run, width):
    text = '<|python_tag|>print("x")\nprint(1)<|eom_id|>'
    for name in ("code_interpreter", "python", "ipython"):
        assert fold(run(parser("search", name), text, width)).calls == [(name, {"code": 'print("x")\nprint(1)'})]
    assert fold(run(parser("search"), text, width)).content == 'print("x")\nprint(1)'


def test_code_that_is_cut_off_is_no_complete_call(run, width):
    folded = fold(run(parser("python"), "<|python_tag|>print(1", width))
    assert folded.calls == []
    assert folded.unfinished == [("python", '{"code":"print(1')]
    assert folded.content == ""
