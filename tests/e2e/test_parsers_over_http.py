"""Every registered parser over HTTP: the scripted model writes its format, the openai SDK reads what becomes of it.

Names come from the entry points and texts from the parsers' own samples, so that a new parser is tested from the start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

import pytest
from openai import OpenAI

from vllm_mlx_core.api import ParserContext
from vllm_mlx_core.host import Host
from vllm_mlx_core.testing.events import fold
from vllm_mlx_parsers.choice import FAMILIES

from .serving import load, serving

TOOL_PARSERS = {each.name: each for each in entry_points(group="vllm_mlx.tool_parsers")}
REASONING_PARSERS = {each.name: each for each in entry_points(group="vllm_mlx.reasoning_parsers")}
PAIRS = sorted({(family.tool, family.reasoning) for family in FAMILIES if family.reasoning is not None})

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
PARIS, ROME = ("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})


@dataclass(frozen=True)
class Reply:
    """What a client got."""

    content: str
    reasoning: str
    calls: list[tuple[str, Any]]
    finish_reason: str


def reasoning_of(message) -> str:
    """Return the reasoning of a message or a delta, which stands under two names."""
    texts = {getattr(message, name, None) or "" for name in ("reasoning", "reasoning_content")}
    assert len(texts) == 1, texts
    return texts.pop()


def whole(answer) -> Reply:
    (choice,) = answer.choices
    calls = choice.message.tool_calls or []
    assert len({call.id for call in calls}) == len(calls)
    assert all(call.id and call.type == "function" for call in calls)
    return Reply(
        choice.message.content or "",
        reasoning_of(choice.message),
        [(call.function.name, json.loads(call.function.arguments)) for call in calls],
        choice.finish_reason,
    )


def streamed(chunks) -> Reply:
    content, reasoning, finish_reasons = "", "", []
    calls: list[tuple[str, str, list[str]]] = []
    for chunk in chunks:
        (choice,) = chunk.choices
        content += choice.delta.content or ""
        reasoning += reasoning_of(choice.delta)
        for part in choice.delta.tool_calls or ():
            if part.index == len(calls):
                assert part.type == "function"
                calls.append((part.id, part.function.name, []))
            else:
                assert (part.index, part.id, part.function.name) == (len(calls) - 1, None, None)
            calls[-1][2].append(part.function.arguments)
        if choice.finish_reason:
            finish_reasons.append(choice.finish_reason)
    (finish_reason,) = finish_reasons
    assert len({call_id for call_id, _, _ in calls}) == len(calls)
    return Reply(content, reasoning, [(name, json.loads("".join(parts))) for _, name, parts in calls], finish_reason)


@pytest.fixture(scope="module")
def client() -> Iterator[OpenAI]:
    """A client of a real server, in a thread of its own: there every model is the scripted one with other parsers."""
    host = Host()
    host.load(["vllm_mlx_core.testing.scripted"])
    chosen = [*((name, None) for name in TOOL_PARSERS), *((None, name) for name in REASONING_PARSERS), *PAIRS]
    models = [load(host, "scripted", model_name(*names), *(name or "none" for name in names)) for names in chosen]
    with (
        serving(host, *models) as http,
        OpenAI(base_url=str(http.base_url), api_key="none", max_retries=0) as client,
    ):
        yield client


def model_name(tool_parser: str | None, reasoning_parser: str | None) -> str:
    return f"{tool_parser}+{reasoning_parser}"


def ask(client: OpenAI, text: str, tool_parser: str | None = None, reasoning_parser: str | None = None) -> Reply:
    """Have the model write ``text``, with and without streaming, and return what is the same in both."""
    request: dict[str, Any] = {
        "model": model_name(tool_parser, reasoning_parser),
        "messages": [{"role": "user", "content": f"#chunk=5\n{text}"}],
        "tools": [WEATHER] if tool_parser else [],
    }
    reply = whole(client.chat.completions.create(**request))
    assert streamed(client.chat.completions.create(stream=True, **request)) == reply
    return reply


@pytest.mark.parametrize("name", sorted(TOOL_PARSERS))
def test_a_call_in_the_format_of_every_tool_parser_reaches_the_client(client, name):
    sample = TOOL_PARSERS[name].load().sample
    assert ask(client, sample, name) == Reply("", "", [PARIS], "tool_calls")


@pytest.mark.parametrize("name", sorted(TOOL_PARSERS))
def test_text_and_two_calls_in_every_format_reach_the_client(client, name):
    sample = TOOL_PARSERS[name].load().sample
    text = f"Let me look.\n{sample}\n{sample.replace('Paris', 'Rome')}"
    assert ask(client, text, name) == Reply("Let me look.", "", [PARIS, ROME], "tool_calls")


@pytest.mark.parametrize("name", sorted(REASONING_PARSERS))
def test_reasoning_in_the_format_of_every_reasoning_parser_reaches_the_client(client, name):
    parser = REASONING_PARSERS[name].load()
    expected = fold(parser(ParserContext()).parse(parser.sample)).reasoning
    assert expected
    assert ask(client, parser.sample, None, name) == Reply("Hello!", expected, [], "stop")


@pytest.mark.parametrize(("tool_parser", "reasoning_parser"), PAIRS)
def test_a_model_thinks_and_then_calls(client, tool_parser, reasoning_parser):
    thought = REASONING_PARSERS[reasoning_parser].load()
    text = thought.sample.partition("Hello!")[0] + TOOL_PARSERS[tool_parser].load().sample
    expected = fold(thought(ParserContext()).parse(thought.sample)).reasoning
    assert ask(client, text, tool_parser, reasoning_parser) == Reply("", expected, [PARIS], "tool_calls")
