"""Parallel tool calls for templates that show one call a message: they refuse more, or silently drop all but the first.

A message with several calls becomes one message per call, each followed by its own answer: the same facts, in an order
the model knows.
"""

from __future__ import annotations

from .messages import Message


def one_call_each(messages: list[Message]) -> list[Message]:
    """Return the messages with every call in one of its own, its answer after it. Does not mutate.

    Calls and answers must have been paired.
    """
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
    """Put each call before its answers; answers to none of them follow the last."""
    by_call: dict[str, list[Message]] = {call["id"]: [] for call in message["tool_calls"]}
    others: list[Message] = []
    for answer in answers:
        by_call.get(answer.get("tool_call_id", ""), others).append(answer)
    done: list[Message] = []
    for call in message["tool_calls"]:
        head = message if not done else {"role": "assistant", "content": ""}
        done += [{**head, "tool_calls": [call]}, *by_call[call["id"]]]
    return done + others
