"""A coding agent's loop with the openai SDK: the model calls, the client answers, the conversation goes on."""

from __future__ import annotations

import json

import pytest
from openai import OpenAI

WRITE_FILE = {
    "type": "function",
    "function": {
        "name": "write_file",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
            "required": ["path", "text"],
        },
    },
}
SOURCE = '''def quote(x):
\t"""Doc's "quoted" \\n text."""
    if x < 3 > 1: return {"a": [1, 2], 'b': `x`}
    s = "</tool_call> <tool_call> </think> <think> ```"
    print(r"C:\\Users\\new\\table", '\\u00e9', "</div>", "}]}")  # 👩‍👩‍👧 日本語 \u2028 é

'''
CONTENTS = {
    "code with tags of the format": SOURCE,
    "fifty thousand characters": (SOURCE * 300)[:50_000],
    "an end tag alone": "</tool_call>",
    "a whole call": '<tool_call>\n{"name": "write_file", "arguments": {}}\n</tool_call>',
    "nothing": "",
    "white space": "\n\n  text \n\n",
    "backslashes before a quote": '\\\\\\"',
}


@pytest.fixture
def client(base_url):
    with OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("text", CONTENTS.values(), ids=CONTENTS)
def test_file_contents_come_through_a_streamed_call_and_back_in_the_next_turn(client, text):
    arguments = {"path": "C:\\new\\a b.py", "text": text}
    call = json.dumps({"name": "write_file", "arguments": arguments}, ensure_ascii=False)
    script = f"#chunk=9\nI write it.\n<tool_call>\n{call}\n</tool_call>"
    messages = [{"role": "user", "content": script}]
    with client.chat.completions.stream(model="default", messages=messages, tools=[WRITE_FILE]) as stream:
        streamed = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
        (choice,) = stream.get_final_completion().choices
    (called,) = choice.message.tool_calls
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I write it.")
    assert (called.function.name, json.loads(called.function.arguments)) == ("write_file", arguments)
    assert "".join(event.arguments_delta for event in streamed) == called.function.arguments

    whole = client.chat.completions.create(model="default", messages=messages, tools=[WRITE_FILE]).choices[0]
    assert [each.function.arguments for each in whole.message.tool_calls] == [called.function.arguments]

    messages += [
        whole.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": whole.message.tool_calls[0].id, "content": text},
        {"role": "user", "content": "Done."},
    ]
    (last,) = client.chat.completions.create(model="default", messages=messages, tools=[WRITE_FILE]).choices
    assert (last.finish_reason, last.message.content, last.message.tool_calls) == ("stop", "Done.", None)
