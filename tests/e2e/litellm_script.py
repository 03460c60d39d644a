"""Ask a server through litellm, print one JSON line of what it understood, and stay until standard input ends.

Runs in an environment of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import litellm  # type: ignore[import-not-found]  # it is in no environment that is checked

server, call, long_file, provider = sys.argv[1:]
litellm.suppress_debug_info = True
where = {"api_base": server if provider == "anthropic" else f"{server}/v1", "api_key": "none", "num_retries": 0}
TOOL = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "array"}}},
}


def user(content):
    return {"role": "user", "content": content}


def ask(*messages, model="default", **more):
    return litellm.completion(model=f"{provider}/{model}", messages=list(messages), max_tokens=50_000, **where, **more)


def read(message):
    (called,) = message.tool_calls
    return {"name": called.function.name, "arguments": json.loads(called.function.arguments)}


def failure(**more):
    try:
        ask(user("x"), **more)
    except (litellm.exceptions.BadRequestError, litellm.exceptions.NotFoundError) as error:
        return error.status_code


tools = [{"type": "function", "function": TOOL}]
whole = ask(user(call), tools=tools).choices[0]
chunks = list(ask(user(call), tools=tools, stream=True))
echoed = user(f"#echo-results\n{call}")
first = ask(echoed, tools=tools).choices[0].message
result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "sunny"}
left = ask(user(Path(long_file).read_text()), stream=True)
began = next(iter(left)) is not None
left.close()
print(
    json.dumps(
        {
            "text": ask(user("Hello 👋")).choices[0].message.content,
            "streamed": "".join(each.choices[0].delta.content or "" for each in ask(user("Hello 👋"), stream=True)),
            "reasoning": ask(user("#open-think\nHm.</think>Yes.")).choices[0].message.get("reasoning_content"),
            "call": read(whole.message),
            "streamedCall": read(litellm.stream_chunk_builder(chunks).choices[0].message),
            "finish": whole.finish_reason,
            "afterTools": ask(echoed, first.model_dump(exclude_none=True), result, tools=tools)
            .choices[0]
            .message.content,
            "left": began,
            "missing": failure(model="nope"),
            "wrong": failure(temperature=3),
        }
    ),
    flush=True,
)
sys.stdin.read()
