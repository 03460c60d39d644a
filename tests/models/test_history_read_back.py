"""The history shows a model its earlier calls as it would write them: the parser chosen for a template reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from vllm_mlx_core.api import Chat, Chunk, ParserContext, Tool
from vllm_mlx_core.host import Host
from vllm_mlx_core.testing.events import check_events, fold
from vllm_mlx_models.rendering import ChatRenderer
from vllm_mlx_models.template import ChatTemplate
from vllm_mlx_parsers.choice import choose

PROPERTIES = {
    "city": {"type": "string"},
    "note": {"type": "string"},
    "n": {"type": "integer"},
    "x": {"type": "number"},
    "flag": {"type": "boolean"},
    "nested": {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": {"type": "integer"}},
            "deep": {"type": "object", "properties": {"flag": {"type": "boolean"}, "text": {"type": "string"}}},
        },
    },
    "list": {"type": "array", "items": {"type": "string"}},
}
TOOLS = (
    Tool("get_weather", "Weather", {"type": "object", "properties": PROPERTIES}),
    Tool("get_time", "Time", {}),
    Tool("mcp.srv-1.read_file", "Read", {"type": "object", "properties": PROPERTIES}),
)
EVERYTHING = {
    "city": "Zürich",
    "note": 'say "hi" <now>\nthen 你好',
    "n": 3,
    "flag": True,
    "nested": {"list": [17, 18]},
}
CALLS: Mapping[str, Sequence[tuple[str, Any]]] = {
    "plain": [("get_weather", {"city": "Oslo"})],
    "everything": [("get_weather", EVERYTHING)],
    "everything, and more calls": [("get_weather", EVERYTHING), ("get_time", {}), ("get_weather", {"city": "Oslo"})],
    "no arguments": [("get_time", {})],
    "unicode": [("get_weather", {"city": "Zürich 你好 👩‍👩‍👧 \u2028"})],
    "markup": [("get_weather", {"note": "<b> & </b> {x} [y] </parameter <tool_call"})],
    "text like JSON": [("get_weather", {"note": '{"a": [1]}', "city": "5"}), ("get_weather", {"note": "true"})],
    "nested": [("get_weather", {"nested": {"list": [1, 2], "deep": {"flag": True, "text": 'é "q"'}}, "list": ["a"]})],
    "scalars": [("get_weather", {"n": -5, "x": 1.5, "flag": False})],
    "empty values": [("get_weather", {"city": "", "nested": {}, "list": []})],
    "several": [("get_weather", {"city": "Oslo"}), ("mcp.srv-1.read_file", {"note": "x"}), ("get_time", {})],
    "the same twice": [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Oslo"})],
}
QUESTION, RESULT = "How is it outside?", "result-of-"


@pytest.fixture(scope="session")
def readers(real_templates):
    """For each template whose family has a parser of its own: what renders it, and that parser's class."""
    host = Host()
    host.load([])
    found = {}
    for name, source in real_templates.items():
        choice = choose({}, source)
        if choice is not None and choice.tool not in (None, "auto"):
            renderer = ChatRenderer(ChatTemplate(source, {"bos_token": "<BOS>", "eos_token": "<EOS>"}))
            found[name] = (renderer, host.tool_parsers.get(choice.tool))
    assert len(found) > 60
    return found


def after_question(renderer, calls, results, **assistant):
    """What a prompt holds behind the question, which an answer with these calls and their results follow."""
    messages = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": calls, **assistant},
        *results,
    ]
    return renderer.render(Chat(messages=messages, tools=TOOLS)).rpartition(QUESTION)[2]


def read(parser_class, text):
    """Return the calls in a text; it is read whole and in small pieces."""
    found = []
    for width in (1, 7, len(text)):
        parser = parser_class(ParserContext(tools=TOOLS))
        events = [
            event for start in range(0, len(text), width) for event in parser.feed(Chunk(text[start : start + width]))
        ]
        events += parser.finish()
        check_events(events)
        found.append(list(fold(events).calls))
    assert found == [found[-1]] * 3
    return found[-1]


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.parametrize("encode", [json.dumps, dict, lambda value: json.dumps(json.dumps(value))])
def test_calls_of_the_history_are_read_back_however_their_arguments_are_sent(readers, case, encode):
    wanted = CALLS[case]
    calls = [call(name, encode(arguments), id=f"call_{i}") for i, (name, arguments) in enumerate(wanted)]
    results = [{"role": "tool", "tool_call_id": f"call_{i}", "content": f"{RESULT}{i}"} for i in range(len(wanted))]
    for name, (renderer, parser) in readers.items():
        text = after_question(renderer, calls, results)
        assert read(parser, text) == wanted, name
        assert [text.count(f"{RESULT}{i}") for i in range(len(wanted))] == [1] * len(wanted), name


PARTS = [{"type": "text", "text": f"{RESULT}0"}, {"type": "text", "text": "in two parts"}]


@pytest.mark.parametrize(
    ("ids", "results"),
    [
        ([{}, {}], [{"content": PARTS}, {"content": f"{RESULT}1"}]),
        ([{"id": 7}, {"id": 7}], [{"content": PARTS, "tool_call_id": 7}, {"content": f"{RESULT}1", "tool_call_id": 7}]),
        ([{"id": "a"}, {"id": "b"}], [{"content": f"{RESULT}1", "tool_call_id": "b"}, {"content": PARTS}]),
        ([{"id": "functions.get_time:1"}, {}], [{"content": PARTS}, {"content": f"{RESULT}1"}]),
    ],
    ids=["no ids", "one id twice", "an id missing", "an id in the style of a family"],
)
@pytest.mark.parametrize("said", [{}, {"content": "Let me look."}, {"reasoning_content": "I should look."}])
def test_calls_are_read_back_whatever_the_ids_and_whatever_stands_beside_them(readers, ids, results, said):
    wanted = [("get_weather", {"city": "Oslo"}), ("get_time", {})]
    calls = [call(name, json.dumps(arguments), **id_) for (name, arguments), id_ in zip(wanted, ids, strict=True)]
    for name, (renderer, parser) in readers.items():
        text = after_question(renderer, calls, [{"role": "tool", **result} for result in results], **said)
        assert read(parser, text) == wanted, name
        for result in (f"{RESULT}0", "in two parts", f"{RESULT}1"):
            assert text.count(result) == 1, (name, result)


def test_arguments_that_are_not_json_are_read_back_as_raw_text(readers):
    for name, (renderer, parser) in readers.items():
        for arguments in ('{"city": "Os', "Oslo"):
            results = [{"role": "tool", "tool_call_id": "a", "content": "no JSON"}]
            text = after_question(renderer, [call("get_weather", arguments, id="a")], results)
            assert read(parser, text) == [("get_weather", {"_raw": arguments})], (name, arguments)
