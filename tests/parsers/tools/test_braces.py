"""The calls of Gemma 4 and of FunctionGemma, which differ in their markers."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_core.api import Chunk, Event, ParserContext, Tool, ToolCallArguments
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_models.template import ChatTemplate
from vllm_mlx_parsers.tools.braces import BraceCallParser
from vllm_mlx_parsers.tools.functiongemma import FunctionGemmaToolParser
from vllm_mlx_parsers.tools.gemma4 import Gemma4ToolParser

TOOLS = (
    Tool(
        "get_weather",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "zip": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "days": {"type": "integer"},
                "where": {"$ref": "#/$defs/Where"},
                "codes": {"type": "array", "items": {"type": "string"}},
            },
            "$defs": {"Where": {"type": "object", "properties": {"lat": {"type": "number"}, "id": {"type": "string"}}}},
        },
    ),
)
PARIS = ("get_weather", {"city": "Paris"})


def render(parser: type[BraceCallParser], body: str, name: str = "f") -> str:
    """Write a call with what stands in its braces, where ``'`` stands for the format's quote."""
    return f"{parser.start}call:{name}{{{body}}}{parser.end}".replace("'", parser.quote)


def samples(parser: type[BraceCallParser]) -> tuple[ToolSample, ...]:
    def call(body: str, values: object) -> ToolSample:
        return ToolSample(render(parser, body), calls=[("f", values)])

    def weather(body: str, values: object) -> ToolSample:
        return ToolSample(render(parser, body, "get_weather"), calls=[("get_weather", values)])

    paris = parser.sample
    (stop,) = parser.stop_tokens
    return (
        ToolSample(paris, calls=[PARIS]),
        ToolSample(f"I look.\n{paris}", "I look.", [PARIS]),
        ToolSample(f"{paris}{render(parser, '', 'b')}{stop}", calls=[PARIS, ("b", {})]),
        ToolSample(f"One\n\n{paris}\ntwo {paris}\n three", "One\n\ntwo three", [PARIS, PARIS]),
        ToolSample(f"{paris.removesuffix(parser.end)} done", "done", [PARIS]),
        ToolSample(render(parser, "", "mcp-x.read_file"), calls=[("mcp-x.read_file", {})]),
        call(
            "n:42,f:-1.5,t:true,g:false,x:null,y:None",
            {"n": 42, "f": -1.5, "t": True, "g": False, "x": None, "y": None},
        ),
        call(
            "o:{a:[1,2],p:{q:'r'}},l:[],e:{},m:[[1],['x',{k:2}]]",
            {"o": {"a": [1, 2], "p": {"q": "r"}}, "l": [], "e": {}, "m": [[1], ["x", {"k": 2}]]},
        ),
        call("'a b':'x','c':{'d.e-f':1}", {"a b": "x", "c": {"d.e-f": 1}}),
        call(" a : 'x' ,\n b : [ 1 , 2 , ] , ", {"a": "x", "b": [1, 2]}),
        call('s:\'a}, {"b": [1]}\n\\n "q" `c` < <| é🎉\'', {"s": 'a}, {"b": [1]}\n\\n "q" `c` < <| é🎉'}),
        call("s:'',t:' keep '", {"s": "", "t": " keep "}),
        call("a:New York,b:10:30,c:2026-01-15,d:", {"a": "New York", "b": "10:30", "c": "2026-01-15", "d": ""}),
        call('"a":"x, \\"y\\"",b:["z"]', {"a": 'x, "y"', "b": ["z"]}),
        weather(
            "city:75001,zip:null,days:soon,codes:[7,a]",
            {"city": "75001", "zip": None, "days": "soon", "codes": ["7", "a"]},
        ),
        weather("where:{lat:48.8,id:12},other:12,days:3", {"where": {"lat": 48.8, "id": "12"}, "other": 12, "days": 3}),
        ToolSample(
            render(parser, f"s:'{parser.end} {parser.start}'"),
            calls=[("f", {"s": f"{parser.end} {parser.start}"})],
            literal=True,
        ),
        ToolSample(f"`{paris}` is a call.", f"`{paris}` is a call.", literal=True),
        ToolSample(f"```\n{paris}\n```", f"```\n{paris}\n```", literal=True),
        ToolSample(f"{parser.start}hello{parser.end}", f"{parser.start}hello{parser.end}", literal=True),
        ToolSample(f"{parser.start}call:f[]", f"{parser.start}call:f[]", literal=True),
    )


class TestGemma4Conforms(ToolParserSuite):
    parser = Gemma4ToolParser
    extra_markers = Gemma4ToolParser.stop_tokens
    tools = TOOLS
    samples = samples(Gemma4ToolParser)


class TestFunctionGemmaConforms(ToolParserSuite):
    parser = FunctionGemmaToolParser
    extra_markers = FunctionGemmaToolParser.stop_tokens
    tools = TOOLS
    samples = samples(FunctionGemmaToolParser)


@pytest.fixture(params=[Gemma4ToolParser, FunctionGemmaToolParser])
def parser(request: pytest.FixtureRequest) -> type[BraceCallParser]:
    kind: type[BraceCallParser] = request.param
    return kind


def arguments_json(events: Iterable[Event]) -> str:
    return "".join(event.json for event in events if isinstance(event, ToolCallArguments))


def test_a_call_without_arguments_has_an_empty_object(parser, run, width):
    assert arguments_json(run(parser(ParserContext()), render(parser, "") + render(parser, " "), width)) == "{}{}"


def test_unicode_stays_literal_and_control_characters_are_escaped(parser, run, width):
    events = run(parser(ParserContext()), render(parser, "a:'北京 🎉\n\tü'"), width)
    assert arguments_json(events) == r'{"a":"北京 🎉\n\tü"}'


def test_strings_stream_while_they_are_written(parser):
    reader = parser(ParserContext())
    pieces = [parser.start, "call:", "f{", "a:", parser.quote, "Paris", " and", " Rome", parser.quote[:2]]
    events = [event for piece in pieces for event in reader.feed(Chunk(piece))]
    assert arguments_json(events) == '{"a":"Paris and Rome'


@pytest.mark.parametrize("body", ["a", "a:1 'x'", "a:'x' b:2", ":1", "a:[1}", "a:{b:1]", "{a:1}", "a:'x'y'"])
def test_braces_that_are_no_arguments_leave_the_call_incomplete(parser, body, run, width):
    folded = fold(run(parser(ParserContext()), render(parser, body) + " x", width))
    assert not folded.calls


def test_the_token_that_opens_a_tool_result_ends_the_answer_and_never_reaches_the_client(parser, run, width):
    (stop,) = parser.stop_tokens
    folded = fold(run(parser(ParserContext()), parser.sample + stop, width))
    assert (folded.content, list(folded.calls)) == ("", [PARIS])


TEXT = st.text(alphabet="a{}[],:\"\\ \n'é<|", max_size=8)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)


def written(value: object, quote: str) -> str:
    """Write a value as the chat template of Gemma 4 does, keys in quotes."""
    match value:
        case str():
            return f"{quote}{value}{quote}"
        case dict():
            return "{" + ",".join(f"{quote}{key}{quote}:{written(item, quote)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ",".join(written(item, quote) for item in value) + "]"
        case bool():
            return str(value).lower()
    return str(value)


@settings(max_examples=200)
@given(
    st.sampled_from([Gemma4ToolParser, FunctionGemmaToolParser]),
    st.dictionaries(TEXT, VALUES, max_size=3),
    st.sampled_from([1, 2, 3, 7, 10_000]),
)
def test_whatever_the_template_writes_is_read(parser, arguments, width):
    text = f"{parser.start}call:f{written(arguments, parser.quote)}{parser.end}"
    reader = parser(ParserContext())
    events = [event for i in range(0, len(text), width) for event in reader.feed(Chunk(text[i : i + width]))]
    assert fold([*events, *reader.finish()]).calls == [("f", arguments)]


@pytest.mark.parametrize("name", ["google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved"])
def test_the_published_template_writes_what_is_read(real_templates, name, run, width):
    arguments = {"city": "Paris, {France}\n", "days": 3, "deep": {"list": [1, "two", None], "yes": True}}
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    text = ChatTemplate(real_templates[name], {"bos_token": "<bos>"}).render({"messages": messages, "tools": []})
    answer = text[text.index("<|turn>model\n") + len("<|turn>model\n") :]
    answer = answer.removesuffix("<turn|>\n")
    folded = fold(run(Gemma4ToolParser(ParserContext()), answer, width))
    assert (folded.content, json.loads(json.dumps(folded.calls[0][1]))) == ("", arguments)
