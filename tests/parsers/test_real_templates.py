"""The circle closes: what a published template writes for a call, the parser chosen for it reads as that call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vllm_mlx_core.api import Chat, Chunk, ParserContext, Tool, ToolCallArguments, ToolCallStart
from vllm_mlx_core.host import Host
from vllm_mlx_models.rendering import ChatRenderer
from vllm_mlx_models.template import ChatTemplate
from vllm_mlx_parsers.choice import choose

TOOLS = (
    Tool(
        "get_weather",
        "Weather of a city",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "note": {"type": "string"},
                "days": {"type": "integer"},
                "flag": {"type": "boolean"},
                "nested": {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer"}}}},
            },
        },
    ),
    Tool("get_time", "Time of day", {"type": "object", "properties": {}}),
)
NOTE = 'say "hi" <now>\nthen 你好'
CALLS = [
    ("get_weather", {"city": "Zürich", "note": NOTE, "days": 3, "flag": True, "nested": {"list": [17, 18]}}),
    ("get_time", {}),
    ("get_weather", {"city": "Oslo"}),
]


@pytest.fixture(scope="session")
def written(real_templates):
    """For every template with a parser of its family: the parser's class, and what the template writes for calls."""
    host = Host()
    host.load([])
    found = {}
    for name, source in real_templates.items():
        choice = choose({}, source)
        if choice is not None and choice.tool not in (None, "auto"):
            renderer = ChatRenderer(ChatTemplate(source, {"bos_token": "<BOS>", "eos_token": ""}))
            texts = [written_calls(renderer, count) for count in (1, len(CALLS))]
            found[name] = (host.tool_parsers.get(choice.tool), texts)
    return found


def written_calls(renderer, count):
    """What stands between the prompt and the first result that follows calls; more results for parallel ones."""
    calls = [
        {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for i, (name, arguments) in enumerate(CALLS[:count])
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "THE RESULT"} for call in calls]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        *results,
    ]
    prompt = renderer.render(Chat(messages=messages[:1], tools=TOOLS))
    whole = renderer.render(Chat(messages=messages, tools=TOOLS))
    same = prompt[: next((i for i, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), len(prompt))]
    if same.rfind("<") > same.rfind(">"):  # both go on with a tag, but not with the same one
        same = same[: same.rfind("<")]
    # Some templates take one call a message, so that the results stand between the calls.
    return whole[len(same) :].rpartition("THE RESULT")[0]


@pytest.mark.parametrize("width", [1, 7, 10_000])
def test_every_parser_reads_what_its_templates_write(written, width):
    assert len(written) > 60
    for name, (parser_class, texts) in written.items():
        for text, count in zip(texts, (1, len(CALLS)), strict=True):
            parser = parser_class(ParserContext(tools=TOOLS))
            pieces = [Chunk(text[start : start + width]) for start in range(0, len(text), width)]
            events = [event for piece in pieces for event in parser.feed(piece)] + list(parser.finish())
            names = {event.index: event.name for event in events if isinstance(event, ToolCallStart)}
            arguments = dict.fromkeys(names, "")
            for event in events:
                if isinstance(event, ToolCallArguments):
                    arguments[event.index] += event.json
            read = [(names[index], json.loads(arguments[index])) for index in names]
            assert read == CALLS[:count], name
