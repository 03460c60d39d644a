"""Parallel tool calls for templates that show one call a message: they refuse more, or silently drop all but the first.

A message with several calls becomes one message per call, each followed by its own answer: the same facts, in an order
the model knows.
"""

from __future__ import annotations

from .messages import Message


def one_call_each(messages: list[Message]) -> list[Message]:
    """Return the messages with every call in one of its own, its answer after it. Does not mutate."""
    done: list[Message] = []
    i = 0
    while i < len(messages):
        message = messages[i]
        i += 1
        calls = message.get("tool_calls", ())
        if len(calls) < 2:
            done.append(message)
            continue
        answers: list[Message] = []
        while i < len(messages) and messages[i]["role"] == "tool":
            answers.append(messages[i])
            i += 1
        done += _split(message, answers)
    return done


def _split(message: Message, answers: list[Message]) -> list[Message]:
    """Pair calls and answers by id; answers that name no call go to the calls that are left, in order."""
    calls = message["tool_calls"]
    by_call: list[list[Message]] = [[] for _ in calls]
    ids = [call.get("id") for call in calls]
    for answer in answers:
        call_id = answer.get("tool_call_id")
        if call_id is not None and call_id in ids:
            by_call[ids.index(call_id)].append(answer)
        else:
            next((found for found in by_call if not found), by_call[-1]).append(answer)
    done: list[Message] = []
    for call, found in zip(calls, by_call, strict=True):
        head = message if not done else {"role": "assistant", "content": ""}
        done += [{**head, "tool_calls": [call]}, *found]
    return done
