"""Calls in whatever format they come."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import pytest

from vllm_mlx_core.api import Chunk, Event, ParserContext, TextDelta, Tool, ToolCallStart, ToolParser
from vllm_mlx_core.host.manager import Host
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import check_events, fold, join
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.auto import FORMS, AutoToolParser
from vllm_mlx_parsers.tools.hermes import HermesToolParser
from vllm_mlx_parsers.tools.kimi_k2 import KimiK2ToolParser
from vllm_mlx_parsers.tools.mistral import MistralToolParser

WEATHER = Tool("get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
PARIS = ("get_weather", {"city": "Paris"})
BARE = ("{", "[")


def builtin_parsers() -> dict[str, type[ToolParser]]:
    """Every tool parser of this distribution, under one of its names."""
    registry = Host().tool_parsers
    found = {registry.load(entry): entry.name for entry in registry if entry.distribution == "vllm-mlx-core"}
    return {name: parser for parser, name in found.items()}


PARSERS = builtin_parsers()


def read(text: str, width: int, *tools: Tool) -> list[Event]:
    parser = AutoToolParser(ParserContext(tools=tools or (WEATHER,)))
    events: list[Event] = []
    for start in range(0, len(text), width):
        events += parser.feed(Chunk(text[start : start + width]))
    events += parser.finish()
    check_events(events)
    return join(events)


def ids(text: str, width: int) -> Sequence[str]:
    """Return the ids as they are, which ``join`` replaces."""
    parser = AutoToolParser(ParserContext(tools=[WEATHER]))
    pieces = (Chunk(text[start : start + width]) for start in range(0, len(text), width))
    events = [*(event for piece in pieces for event in parser.feed(piece)), *parser.finish()]
    return [event.id for event in events if isinstance(event, ToolCallStart)]


def qwen_call(name: str, body: str = "") -> str:
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


class TestAutoConforms(ToolParserSuite):
    parser = AutoToolParser
    tools = (WEATHER, Tool("now"))
    bare = True  # some of its formats are
    samples = (
        ToolSample(HermesToolParser.sample, calls=[PARIS]),
        ToolSample(f"I look.\n{HermesToolParser.sample}\n\nDone.", "I look.\nDone.", [PARIS]),
        ToolSample(
            '<tool_call>[{"name": "f", "arguments": {"a": 1}}, {"name": "g"}]', calls=[("f", {"a": 1}), ("g", {})]
        ),
        ToolSample(qwen_call("f", "<parameter=a>\nx\n</parameter>\n"), calls=[("f", {"a": "x"})]),
        ToolSample("<function=now>\n</function>", calls=[("now", {})]),
        ToolSample('<function=f>{"a": 1}</function>', calls=[("f", {"a": 1})]),
        ToolSample(
            "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call>", calls=[("f", {"a": "x"})]
        ),
        ToolSample("<tool_call>f</tool_call>ok", "ok", [("f", {})]),
        ToolSample(
            "<tool_calls><tool_call>f<tool_sep><arg_key>a</arg_key><arg_value>x</arg_value></tool_call></tool_calls>",
            calls=[("f", {"a": "x"})],
        ),
        ToolSample('<|tool_call>call:f{a:<|"|>x<|"|>}<tool_call|>', calls=[("f", {"a": "x"})]),
        ToolSample("<|python_tag|>[now(), f(a=1)]", calls=[("now", {}), ("f", {"a": 1})]),
        ToolSample('<|python_tag|>{"name": "f", "parameters": {}}', calls=[("f", {})]),
        ToolSample('[TOOL_CALLS]f[ARGS]{"a": "[TOOL_CALLS]"}', calls=[("f", {"a": "[TOOL_CALLS]"})], literal=True),
        ToolSample('{"name": "now", "arguments": {}}', calls=[("now", {})]),
        ToolSample("[get_weather(city='Paris'), now()]", calls=[PARIS, ("now", {})]),
        ToolSample('>>>now\n{}>>>get_weather\n{"city": "Paris"}', calls=[("now", {}), PARIS]),
        ToolSample('{"name": "Alice", "arguments": {}}', '{"name": "Alice", "arguments": {}}'),
        ToolSample('Yes: {"name": "now", "arguments": {}}', 'Yes: {"name": "now", "arguments": {}}'),
        ToolSample("Use `<tool_call>` here.", "Use `<tool_call>` here.", literal=True),
        ToolSample("The <tool_call> tag is one.", "The <tool_call> tag is one.", literal=True),
        ToolSample("a[0] > {b} <function=x> [1]", "a[0] > {b} <function=x> [1]", literal=True),
    )


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_every_format_of_this_project_is_recognised(name, width):
    folded = fold(read(PARSERS[name].sample, width))
    assert (folded.content, list(folded.calls)) == ("", [PARIS])


def test_each_call_of_a_completion_may_come_in_another_format():
    marked = {name: parser.sample for name, parser in PARSERS.items() if parser.sample[0] not in BARE}
    for (first, before), (second, after) in itertools.product(marked.items(), repeat=2):
        events = read(f"{before}\n{after}", 10_000)
        assert fold(events).calls == [PARIS, PARIS], f"{first}, then {second}"
        assert read(f"{before}\n{after}", 3) == events, f"{first}, then {second}, in pieces"
        assert len(set(ids(f"{before}\n{after}", 10_000))) == 2, f"{first}, then {second}"


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "my-app", "version": "1.0"}\n```',
        '{"name": "my-app", "version": "1.0"}',
        '{"name": "Alice"}',
        '{"name": "get_weather"}',
        '[{"name": "Alice", "arguments": {}}]',
        '{"answer": {"name": "get_weather", "arguments": {"city": "Paris"}}}',
        'The call is {"name": "get_weather", "arguments": {"city": "Paris"}}.',
        "Call\n[get_weather(city='Paris')]",
        "[other(city='Paris')]",
        ">>>other\n{}",
        ">>> get_weather",
        "[1] A source. [2] Another.",
        "functools is a module; <tool_call> is a tag, [TOOL_CALLS] a marker, <function=f> another.",
        "if a < b and c > d: x = {e: [f]}",
    ],
)
def test_prose_and_json_that_call_no_declared_tool_stay_content(text, width):
    assert read(text, width) == [TextDelta(text)]


def test_a_bare_call_needs_a_declared_tool(width):
    text = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
    assert read(text, width, Tool("other")) == [TextDelta(text)]


def test_an_answer_that_begins_like_json_does_not_hide_a_call_after_it(width):
    folded = fold(read(f"[1] says so: {{a}}.\n{HermesToolParser.sample}", width))
    assert (folded.content, list(folded.calls)) == ("[1] says so: {a}.", [PARIS])


def test_ids_are_those_of_the_format(width):
    mistral, kimi = MistralToolParser.sample, KimiK2ToolParser.sample
    first, second = ids(mistral + kimi, width)
    assert re.fullmatch("[A-Za-z0-9]{9}", first)
    assert second == "functions.get_weather:0"


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("<|channel|>final<|message|>Hello<|return|>", "Hello", []),
        (
            "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
            'to=functions.get_weather<|message|>{"city": "Paris"}<|call|>',
            "I look.",
            [PARIS],
        ),
    ],
)
def test_the_headers_of_harmony_do_not_reach_the_client(text, content, calls, width):
    folded = fold(read(text, width))
    assert (folded.content, list(folded.calls)) == (content, calls)


def test_no_start_is_left_to_chance():
    """Where several forms share a start, each says what must follow it."""
    for start in AutoToolParser.starts:
        forms = [form for form in FORMS if start in form.starts]
        assert len(forms) == 1 or all(form.ahead for form in forms), start
        for form in forms:
            assert start in (*form.parser.starts, "{", "["), f"{form.parser.__name__} does not read {start}"


def test_the_name_is_known_as_soon_as_the_format_says_it():
    parser = AutoToolParser(ParserContext())
    events = [
        event for piece in ("<tool_call>", '{"name": ', '"f", ', '"arguments": ') for event in parser.feed(Chunk(piece))
    ]
    assert [event.name for event in events if isinstance(event, ToolCallStart)] == ["f"]
