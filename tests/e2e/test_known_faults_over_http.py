"""Faults of other servers in what tool calls and thinking look like on the wire, none of which may happen here.

The scripted model writes each completion in tokens of several widths; the answer is read in one piece and as a stream,
event by event, as the strictest clients read it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from vllm_mlx_core.host import Host

from .serving import load, serving

WIDTHS = (1, 3, 13, 4_000)
"""Characters a token has."""
PAIRS = [
    ("qwen3_coder", "qwen3"), ("hermes", "qwen3"), ("glm45", "glm4"), ("mistral", "mistral"), ("kimi_k2", "kimi_k2"),
    ("harmony", "harmony"), ("auto", "none"), ("llama3_json", "none"),
]  # fmt: skip


def function(name, **properties):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


TEXT = {"type": "string"}
TOOLS = [
    function("get_weather", city=TEXT),
    function("read", filePath=TEXT, limit={"type": "integer"}),
    function("ping"),
    function("search", body={"type": "object"}, sure={"type": "boolean"}, day={"type": "integer"}),
]


# -- a server --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    host = Host()
    host.load(["vllm_mlx_core.testing.scripted"])
    with serving(host, *(load(host, "scripted", "+".join(pair), *pair) for pair in PAIRS)) as client:
        yield client


# -- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """What a client got, in one piece or as a stream."""

    content: str
    reasoning: str
    calls: list[tuple[str, Any]]
    """Name and arguments."""
    finish_reason: str


def whole(answer: dict[str, Any]) -> Reply:
    (choice,) = answer["choices"]
    message = choice["message"]
    calls = message.get("tool_calls", [])
    assert len({call["id"] for call in calls}) == len(calls)
    return Reply(
        message["content"] or "",
        message.get("reasoning") or "",
        [(call["function"]["name"], call["function"]["arguments"]) for call in calls],
        choice["finish_reason"],
    )


def streamed(lines: Iterator[str]) -> Reply:
    """Join a stream, and check the shape of every delta in it."""
    content = reasoning = ""
    calls: list[tuple[str, str, str]] = []
    finishes: list[str] = []
    *events, done = [line.removeprefix("data: ") for line in lines if line and not line.startswith(":")]
    assert done == "[DONE]"
    for event in events:
        chunk = json.loads(event)
        assert chunk["object"] == "chat.completion.chunk"
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        assert not finishes, "something comes after the finish reason"
        if choice["finish_reason"] is not None:
            finishes.append(choice["finish_reason"])
        content += delta.get("content") or ""
        reasoning += delta.get("reasoning") or ""
        for part in delta.get("tool_calls", ()):
            assert type(part["index"]) is int
            if part["index"] == len(calls):
                assert set(part) == {"index", "id", "type", "function"}
                assert part["type"] == "function"
                assert part["id"]
                assert part["function"]["name"]
                assert part["function"]["arguments"] == ""
                calls.append((part["id"], part["function"]["name"], ""))
            else:
                assert part["index"] == len(calls) - 1
                assert set(part) == {"index", "function"}
                assert set(part["function"]) == {"arguments"}
                assert part["function"]["arguments"]
                call_id, name, arguments = calls[-1]
                calls[-1] = (call_id, name, arguments + part["function"]["arguments"])
    assert len({call_id for call_id, _, _ in calls}) == len(calls)
    (finish_reason,) = finishes
    return Reply(content, reasoning, [(name, arguments) for _, name, arguments in calls], finish_reason)


def ask_raw(client: httpx.Client, text: str, model: str, *, open_think: bool = False, **options: Any) -> Reply:
    """Have a model write ``text`` in tokens of every width, with and without streaming; return what all give."""
    replies = []
    for width in WIDTHS:
        script = "#open-think\n" * open_think + f"#chunk={width}\n{text}"
        body = {"model": model, "messages": [{"role": "user", "content": script}], "tools": TOOLS, **options}
        answer = client.post("/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        replies.append(whole(answer.json()))
        with client.stream("POST", "/chat/completions", json={**body, "stream": True}) as response:
            assert response.status_code == 200
            replies.append(streamed(response.iter_lines()))
    first, *others = replies
    for other in others:
        assert other == first, "what a client gets depends on the width of tokens or on streaming"
    return first


def ask(client: httpx.Client, text: str, model: str = "qwen3_coder+qwen3", **options: Any) -> Reply:
    """As ``ask_raw``, with the arguments decoded."""
    reply = ask_raw(client, text, model, **options)
    return replace(reply, calls=[(name, json.loads(arguments)) for name, arguments in reply.calls])


def called(*calls: tuple[str, Any], content: str = "", reasoning: str = "") -> Reply:
    """Return the reply of a model that called tools."""
    return Reply(content, reasoning, list(calls), "tool_calls")


def answered(content: str = "", reasoning: str = "") -> Reply:
    """Return the reply of a model that called none."""
    return Reply(content, reasoning, [], "stop")


PARIS, ROME = ("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})


def qwen_call(name, **values):
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


WEATHER, WEATHER_IN_ROME = qwen_call("get_weather", city="Paris"), qwen_call("get_weather", city="Rome")
HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
HARMONY = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}<|call|>'
FORMATS = {
    "qwen3_coder+qwen3": WEATHER,
    "auto+none": WEATHER,
    "hermes+qwen3": HERMES,
    "glm45+glm4": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
    "mistral+mistral": '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
    "kimi_k2+kimi_k2": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        '{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>'
    ),
    "harmony+harmony": HARMONY,
    "llama3_json+none": '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}<|eom_id|>',
}
ALL_FORMATS = pytest.mark.parametrize(("model", "call"), FORMATS.items(), ids=FORMATS)


# -- calls -----------------------------------------------------------------------------------------------------------


def test_a_streamed_call_is_a_call_and_never_content(client):
    assert ask(client, f"Let me look.\n{WEATHER}") == called(PARIS, content="Let me look.")
    both = f"Let me look.\n{WEATHER}\n{WEATHER_IN_ROME}"
    assert ask(client, both) == called(PARIS, ROME, content="Let me look.")


@ALL_FORMATS
def test_deltas_of_a_call_have_the_shape_that_strict_clients_want(client, model, call):
    rome = call.replace("Paris", "Rome").replace(":0", ":1")
    assert ask(client, f"{call}{rome}", model) == called(PARIS, ROME)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("hermes+qwen3", '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'),
        ("hermes+qwen3", '<tool_call>\n{"name": "ping"}\n</tool_call>'),
        ("glm45+glm4", "<tool_call>ping</tool_call>"),
        ("qwen3_coder+qwen3", "<tool_call>\n<function=ping>\n</function>\n</tool_call>"),
        ("harmony+harmony", HARMONY.replace("get_weather", "ping").replace('{"city":"Paris"}', "")),
    ],
)
def test_a_call_without_arguments_is_sent_with_an_empty_object(client, model, text):
    assert ask_raw(client, text, model).calls == [("ping", "{}")]


@pytest.mark.parametrize("open_think", [False, True])
def test_a_call_in_thinking_that_never_closes_reaches_the_client(client, open_think):
    text = f"need the file\n{qwen_call('read', filePath='/tmp/probe.txt')}"
    reply = ask(client, text if open_think else f"<think>\n{text}", open_think=open_think)
    assert reply == called(("read", {"filePath": "/tmp/probe.txt"}), reasoning="need the file")


def test_a_draft_in_thinking_that_closes_is_no_call(client):
    reply = ask(client, f"<think>\nmaybe\n{WEATHER}\n</think>\n\nNo need.")
    assert reply == answered("No need.", f"maybe\n{WEATHER}")


def test_a_raw_newline_in_json_is_read_and_broken_json_is_a_normal_answer(client):
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "line1\nline2"}}\n</tool_call>'
    assert ask(client, text, "hermes+qwen3") == called(("get_weather", {"city": "line1\nline2"}))
    broken = '<tool_call>\n{"name": oops}\n</tool_call>'
    assert ask(client, broken, "hermes+qwen3") == answered(broken)


def test_values_that_do_not_fit_their_types_reach_the_client_as_they_were_written(client):
    values = {"day": "2026-01-15", "body": "not json", "sure": "maybe"}
    assert ask(client, qwen_call("search", **values)) == called(("search", values))


def test_json_in_an_answer_is_no_call(client):
    for text in ('```json\n{"name":"my-app","version":"1.0"}\n```', '{"name": "Alice"}'):
        for model in ("llama3_json+none", "hermes+qwen3", "auto+none"):
            assert ask(client, text, model) == answered(text)


@ALL_FORMATS
def test_text_before_between_and_after_calls_is_the_same_streamed_and_whole(client, model, call):
    if model == "harmony+harmony":
        said = "<|channel|>commentary<|message|>{}<|end|><|start|>assistant"
        text = f"{said.format('First.')}{call}"
        assert ask(client, text, model) == called(PARIS, content="First.")
        return
    rome = call.replace("Paris", "Rome").replace(":0", ":1")
    reply = ask(client, f"First.\n\n{call}\nSecond.\n{rome}\nThird.", model)
    assert reply == called(PARIS, ROME, content="First.\n\nSecond.\nThird.")


def test_ids_have_the_style_of_their_family_and_are_the_same_in_both_modes(client):
    def ids(model):
        body = {"model": model, "tools": TOOLS, "messages": [{"role": "user", "content": FORMATS[model]}]}
        (choice,) = client.post("/chat/completions", json=body).json()["choices"]
        return [call["id"] for call in choice["message"]["tool_calls"]]

    assert re.fullmatch("[A-Za-z0-9]{9}", *ids("mistral+mistral"))
    assert ids("kimi_k2+kimi_k2") == ["functions.get_weather:0"]
    assert re.fullmatch("call_[0-9a-f]{24}", *ids("hermes+qwen3"))


# -- options ---------------------------------------------------------------------------------------------------------


@ALL_FORMATS
def test_with_tool_choice_none_there_is_neither_call_nor_markup(client, model, call):
    reply = ask(client, f"Let me look.{call}" if model != "harmony+harmony" else call, model, tool_choice="none")
    assert (reply.calls, reply.finish_reason) == ([], "stop")
    assert reply.content == ("Let me look." if model != "harmony+harmony" else "")
    assert "<" not in reply.reasoning  # a Harmony message to a function that must not be called is an aside


@ALL_FORMATS
def test_without_parallel_calls_there_is_one_at_most(client, model, call):
    rome = call.replace("Paris", "Rome").replace(":0", ":1")
    assert ask(client, f"{call}{rome}", model, parallel_tool_calls=False) == called(PARIS)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [TOOLS, []])
def test_a_choice_of_a_tool_that_is_not_there_is_refused_before_the_stream_begins(client, stream, tools):
    body = {
        "model": "hermes+qwen3", "messages": [{"role": "user", "content": HERMES}], "tools": tools,
        "tool_choice": {"type": "function", "function": {"name": "unknown"}}, "stream": stream,
    }  # fmt: skip
    answer = client.post("/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("tool_choice")


@ALL_FORMATS
def test_a_call_that_the_limit_cuts_off_is_finished_by_its_length_and_the_same_in_both_modes(client, model, call):
    for width in (1, 3):
        count = (call.index("Paris") + 3) // width
        body = {
            "model": model, "tools": TOOLS, "max_tokens": count,
            "messages": [{"role": "user", "content": f"#chunk={width}\n{call}"}],
        }  # fmt: skip
        reply = whole(client.post("/chat/completions", json=body).json())
        with client.stream("POST", "/chat/completions", json={**body, "stream": True}) as response:
            assert streamed(response.iter_lines()) == reply
        assert (reply.content, reply.finish_reason) == ("", "length")
        ((name, arguments),) = reply.calls
        assert name == "get_weather"
        assert '{"city":"Paris'.startswith(arguments.replace(" ", ""))
        with pytest.raises(ValueError, match="Unterminated string"):
            json.loads(arguments)


# -- thinking --------------------------------------------------------------------------------------------------------


def test_thinking_that_the_prompt_opened_and_tags_in_the_answer_are_told_apart(client):
    assert ask(client, "plan it\n</think>\n\nThe answer.", open_think=True) == answered("The answer.", "plan it")
    assert ask(client, "</think>\n\nHi", open_think=True) == answered("Hi")
    text = "Use the </think> tag and <think> too."
    assert ask(client, f"Hm.</think>{text}", open_think=True) == answered(text, "Hm.")


def test_stop_strings_do_not_end_the_thinking(client):
    text = "<think>First.\n\nSecond.</think>Answer.\n\nMore."
    assert ask(client, text, stop=["\n\n"]) == answered("Answer.", "First.\n\nSecond.")


def test_reasoning_can_be_left_out_and_has_both_names_if_it_is_not(client):
    body = {"model": "hermes+qwen3", "messages": [{"role": "user", "content": "<think>Hm.</think>Hi."}]}
    shown, hidden = (
        client.post("/chat/completions", json={**body, "include_reasoning": each}).json()["choices"][0]["message"]
        for each in (True, False)
    )
    assert (shown["reasoning"], shown["reasoning_content"], shown["content"]) == ("Hm.", "Hm.", "Hi.")
    assert not {"reasoning", "reasoning_content"} & set(hidden)
    assert hidden["content"] == "Hi."


# -- prompts and history: models with templates ----------------------------------------------------------------------

THINKS = """\
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
{%- if m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}
{{- m.content + '<|im_end|>\\n' }}{% endfor %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}
{%- else %}{{ '<think>\\n' }}{% endif %}"""
NINE_CHARACTERS = """\
{%- for m in messages %}
{%- if m.tool_calls %}{% for call in m.tool_calls %}
{%- if call.id is not defined or call.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}
{{- '[TOOL_CALLS] [' + {'name': call.function.name, 'id': call.id} | tojson + ']' }}{% endfor %}
{%- elif m.role == 'tool' %}
{%- if m.tool_call_id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}
{{- '[TOOL_RESULTS] ' + {'content': m.content, 'call_id': m.tool_call_id} | tojson + '[/TOOL_RESULTS]' }}
{%- else %}{{ '[INST] ' + m.content + '[/INST]' }}{% endif %}{% endfor %}"""


@contextmanager
def serving_template(folder, template: str, *parsers: str) -> Iterator[httpx.Client]:
    (folder / "chat_template.jinja").write_text(template)
    host = Host()
    host.load([])
    with serving(host, load(host, str(folder), "templated", *parsers)) as client:
        yield client


@pytest.fixture
def folder(tiny_model, tmp_path):
    return shutil.copytree(tiny_model("llama"), tmp_path / "model")


def test_with_thinking_switched_off_in_any_way_all_is_content(folder):
    hi = [{"role": "user", "content": "Hi"}]
    body = {"model": "templated", "messages": hi, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    ways: list[dict[str, Any]] = [
        {"chat_template_kwargs": {"enable_thinking": False}}, {"enable_thinking": False}, {"reasoning_effort": "none"},
    ]  # fmt: skip
    with serving_template(folder, THINKS, "hermes", "deepseek_r1") as client:
        for way in ways:
            reply = whole(client.post("/chat/completions", json={**body, **way}).json())
            assert (reply.reasoning, reply.finish_reason) == ("", "length")
            assert reply.content
        reply = whole(client.post("/chat/completions", json=body).json())
        assert reply.reasoning
        assert reply.content == ""


def test_past_reasoning_is_taken_under_both_names_and_reaches_the_template(folder):
    def prompt_tokens(client, **reasoning):
        said = {"role": "assistant", "content": "Hi.", **reasoning}
        messages = [{"role": "user", "content": "Hi"}, said, {"role": "user", "content": "And?"}]
        body = {"model": "templated", "messages": messages, "max_tokens": 1}
        answer = client.post("/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["usage"]["prompt_tokens"]

    with serving_template(folder, THINKS, "hermes", "qwen3") as client:
        without = prompt_tokens(client)
        counts = [prompt_tokens(client, **{name: "I greet back."}) for name in ("reasoning", "reasoning_content")]
    assert counts[0] == counts[1] > without


def test_ids_of_other_servers_render_in_templates_that_want_nine_characters(folder):
    call = {"type": "function", "function": {"name": "ping", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call_3f2a-long", **call}]},
        {"role": "tool", "tool_call_id": "call_3f2a-long", "content": "pong"},
    ]
    with serving_template(folder, NINE_CHARACTERS, "mistral", "none") as client:
        body = {"model": "templated", "messages": messages, "tools": TOOLS, "max_tokens": 1}
        answer = client.post("/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
