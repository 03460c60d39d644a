"""Calls written as Python, bare and between markers."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_core.api import Chunk, Event, ParserContext, Tool, ToolCallArguments
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_models.template import ChatTemplate
from vllm_mlx_parsers.python_scan import PythonScanner
from vllm_mlx_parsers.tools.pythonic import PythonicToolParser

WEATHER = Tool("get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}, "days": {}}})
TOOLS = (WEATHER, Tool("now"), Tool("files.read-all"))
PARIS = ("get_weather", {"city": "Paris"})


def lfm2(calls: str) -> str:
    return f"<|tool_call_start|>{calls}<|tool_call_end|>"


def call(arguments: str, values: dict[str, Any]) -> ToolSample:
    return ToolSample(lfm2(f"[f({arguments})]"), calls=[("f", values)])


class TestMarkedPythonicConforms(ToolParserSuite):
    parser = PythonicToolParser
    tools = TOOLS
    samples = (
        ToolSample(lfm2("[get_weather(city='Paris')]"), calls=[PARIS]),
        ToolSample(
            "I look.\n" + lfm2('[get_weather(city="Paris"), other()]') + "\nDone.",
            "I look.\nDone.",
            [PARIS, ("other", {})],
        ),
        ToolSample(lfm2("[now()]") + " and " + lfm2("[now()]"), "and", [("now", {})] * 2),
        ToolSample("<function_calls>\nnow()\nf(a=1)\n</function_calls>", calls=[("now", {}), ("f", {"a": 1})]),
        ToolSample("<function_calls>now()\nf(\n  a=1,\n)</function_calls>ok", "ok", [("now", {}), ("f", {"a": 1})]),
        ToolSample("Hi <|python_start|>[now()]<|python_end|>", "Hi", [("now", {})]),
        ToolSample("<|python_tag|>[now()]", calls=[("now", {})]),
        ToolSample("<|tool_call_start|>[now()] Done.", "Done.", [("now", {})]),
        ToolSample(
            lfm2('[{"name": "f", "arguments": {"a": [1]}}, {"name": "now", "arguments": {}}]'),
            calls=[("f", {"a": [1]}), ("now", {})],
        ),
        call("a=1, b=-2.5, c=True, d=false, e=None", {"a": 1, "b": -2.5, "c": True, "d": False, "e": None}),
        call(
            "a={'b': [1, (2, 3), {}], 'c': {\"d\": ()},}, e=[]", {"a": {"b": [1, [2, 3], {}], "c": {"d": []}}, "e": []}
        ),
        call(r"a='it\'s \"x\"\n\\', b=r'\d', c='\u00e9\x41'", {"a": 'it\'s "x"\n\\', "b": r"\d", "c": "éA"}),
        call("a='''l1\nl2 'x' ''y''', b='one' \" two\", c=''", {"a": "l1\nl2 'x' ''y", "b": "one two", "c": ""}),
        call("a='line\n  it's', b='(], {x=1}'", {"a": "line\n  it's", "b": "(], {x=1}"}),
        call("a='北京', b=\"🎉\", c=celsius, d=Unit.DAY", {"a": "北京", "b": "🎉", "c": "celsius", "d": "Unit.DAY"}),
        ToolSample(lfm2("[f(a='<|tool_call_end|>')]"), calls=[("f", {"a": "<|tool_call_end|>"})], literal=True),
        ToolSample(
            lfm2("[get_weather('Paris', 3), files.read-all()]"),
            calls=[("get_weather", {"city": "Paris", "days": 3}), ("files.read-all", {})],
        ),
        ToolSample("`<|tool_call_start|>` opens a call.", "`<|tool_call_start|>` opens a call.", literal=True),
        ToolSample("```\n" + lfm2("[now()]") + "\n```", "```\n" + lfm2("[now()]") + "\n```", literal=True),
        ToolSample("<|tool_call_start|> is it.", "<|tool_call_start|> is it.", literal=True),
    )


class TestBarePythonicConforms(ToolParserSuite):
    parser = PythonicToolParser
    tools = TOOLS
    bare = True
    extra_markers = PythonicToolParser.stop_tokens
    samples = (
        ToolSample("[get_weather(city='Paris')]", calls=[PARIS]),
        ToolSample("[get_weather(city='Paris'), now()]", calls=[PARIS, ("now", {})]),
        ToolSample("Let me look.\n\n[now()]", "Let me look.", [("now", {})]),
        ToolSample("One.\n  [now()]\ntwo", "One.\n  two", [("now", {})]),
        ToolSample("[now()][now()]", calls=[("now", {})] * 2),
        ToolSample("[ now( ) ]", calls=[("now", {})]),
        ToolSample("See [now()] there.", "See [now()] there."),
        ToolSample("<|eom|>See [now()]", "See [now()]"),
        ToolSample("[other(a=1)]", "[other(a=1)]"),
        ToolSample("[link](http://x) [1]\n[2]", "[link](http://x) [1]\n[2]"),
        ToolSample('["get_weather", {"name": "Alice"}]', '["get_weather", {"name": "Alice"}]'),
        ToolSample("[now] or get_weather('x')", "[now] or get_weather('x')"),
        ToolSample("```python\n[now()]\n```", "```python\n[now()]\n```"),
    )


@pytest.mark.parametrize(
    "text", ['[{"name": "now", "arguments": {}}]', "[get_weathers(city='x')]", "now()", "- [now()]"]
)
def test_lists_and_names_that_only_look_like_calls_stay_content(text, run, width):
    folded = fold(run(PythonicToolParser(ParserContext(tools=TOOLS)), text, width))
    assert (folded.content, list(folded.calls)) == (text, [])


def test_a_bare_list_is_no_call_where_no_tools_are_declared(run, width):
    assert fold(run(PythonicToolParser(ParserContext()), "[now()]", width)).content == "[now()]"


def test_the_published_template_writes_what_is_read(real_templates, run, width):
    arguments = {"city": "Paris, l'été\n[x]", "days": 3, "deep": {"list": [1, "two", None], "yes": True}, "no": False}
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "I look.", "tool_calls": [call]}]
    text = ChatTemplate(real_templates["LFM2.5-8B-A1B"], {"bos_token": "<bos>"}).render(
        {"messages": messages, "tools": []}
    )
    _, _, answer = text.partition("<|im_start|>assistant\n")
    assert "<|tool_call_start|>[get_weather(city='Paris" in answer
    answer = answer.removesuffix("<|im_end|>\n")
    folded = fold(run(PythonicToolParser(ParserContext()), answer, width))
    assert (folded.content, list(folded.calls)) == ("I look.", [("get_weather", arguments)])


def arguments_json(events: Iterable[Event]) -> str:
    return "".join(event.json for event in events if isinstance(event, ToolCallArguments))


def test_a_call_without_arguments_has_an_empty_object(run, width):
    events = run(PythonicToolParser(ParserContext(tools=TOOLS)), "[now(), now( )]", width)
    assert arguments_json(events) == "{}{}"


def test_unicode_stays_literal_and_control_characters_are_escaped(run, width):
    events = run(PythonicToolParser(ParserContext()), lfm2("[f(a='北京 🎉\n\tü')]"), width)
    assert arguments_json(events) == r'{"a":"北京 🎉\n\tü"}'


def test_text_around_calls_is_the_same_in_pieces_and_at_once(run, width):
    folded = fold(run(PythonicToolParser(ParserContext()), f" Before. \n{lfm2('[f()]')}\n\nAfter. ", width))
    assert (folded.content, list(folded.calls)) == (" Before. \nAfter. ", [("f", {})])


def test_strings_stream_while_they_are_written():
    parser = PythonicToolParser(ParserContext(tools=TOOLS))
    events = [
        event for piece in ["[get_weather(", "city='Par", "is and", " Rome"] for event in parser.feed(Chunk(piece))
    ]
    assert arguments_json(events) == '{"city":"Paris and Rome'


@pytest.mark.parametrize(
    "arguments",
    ["'Paris', 3, 4", "'Paris', city='Rome'", "city='a', city='b'", "city='a' days=1", "city=f(1)", "city="],
)
def test_arguments_that_python_refuses_leave_the_call_incomplete(arguments, run, width):
    folded = fold(run(PythonicToolParser(ParserContext(tools=TOOLS)), lfm2(f"[get_weather({arguments})]"), width))
    assert not folded.calls


def test_a_list_that_is_cut_off_after_a_call_leaves_that_call(run, width):
    text = "[get_weather(city='Paris'), get_wea"
    folded = fold(run(PythonicToolParser(ParserContext(tools=TOOLS)), text, width))
    assert (folded.content, list(folded.calls)) == ("", [PARIS])


def scan(literal: str, width: int) -> Any:
    """Return the value of a literal read in pieces; raises ValueError if it is none."""
    scanner, text, json_text = PythonScanner(), literal + ")", ""
    for start in range(0, len(text), width):
        scanner.feed(text[start : start + width])
        json_text += scanner.take()
        if scanner.done or scanner.broken:
            break
    if not scanner.done:
        raise ValueError(literal)
    return json.loads(json_text)


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=12)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text(max_size=6), inner, max_size=4),
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(VALUES, st.sampled_from([1, 2, 3, 7, 10_000]))
def test_whatever_python_writes_is_read(value, width):
    assert scan(repr(value), width) == json.loads(json.dumps(value))


@settings(max_examples=300)
@given(st.text(alphabet="'\"\\nx01aé \n", max_size=12), st.sampled_from(["'", '"', "'''", '"""']), st.booleans())
def test_a_string_that_python_reads_means_the_same(body, quote, raw):
    source = ("r" if raw else "") + quote + body + quote
    try:
        value = ast.literal_eval(source)
    except (SyntaxError, ValueError):
        return
    if re.search(r"""['"]\s*\\\n""", source):
        return  # perhaps strings joined across a line that is continued, which nobody writes in a call
    assert scan(source, 1) == scan(source, 100) == value


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("('long '\n 'string')", "long string"),
        ("((1), (2,), ())", [1, [2], []]),
        ("{1: 'a', None: 'b', c: 'd'}", {"1": "a", "null": "b", "c": "d"}),
        ("0x1F", 31),
        ("1_000", 1000),
        (".5", 0.5),
        ("+5", 5),
        ("007", "007"),
        ("2026-01-15", "2026-01-15"),
        ("1e999", "1e999"),
        ("nan", "nan"),
        ("'the dogs' bowl'", "the dogs' bowl"),
        (r"'\ud83c\udf89 \777 \q \x4'", "🎉 ǿ \\q \\x4"),
        ("'a\\\nb'", "ab"),
    ],
)
@pytest.mark.parametrize("width", [1, 100])
def test_literals_in_the_forms_models_write(literal, value, width):
    assert scan(literal, width) == value


@pytest.mark.parametrize(
    "literal", ["", "{1, 2}", "[1 2]", "{'a' 1}", "{[1]: 2}", "'''a''' b", "[,]", "(,)", "{'a':}", "[1)"]
)
def test_what_is_no_literal_is_broken_or_has_no_end(literal):
    for width in (1, 100):
        with pytest.raises(ValueError, match=r".*"):
            scan(literal, width)
