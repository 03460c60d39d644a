"""Orders of a conversation's messages that say the same, for templates that do not take it as it was sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from .messages import Message

Arrangement: TypeAlias = Callable[[list[Message]], list[Message]]


def arrangements(roles: Sequence[str]) -> list[Arrangement]:
    """Return the arrangements worth trying for messages of these roles, each further from what was sent."""
    system = [i for i, role in enumerate(roles) if role in SYSTEM_ROLES]
    if any(i > 0 for i in system):
        return [as_sent, merged, folded, joined, led]
    return [as_sent, folded, joined] if system else [as_sent, joined]


SYSTEM_ROLES = ("system", "developer")


def is_system(message: Message) -> bool:
    """Return whether this is a system message under either of its names."""
    return message["role"] in SYSTEM_ROLES


def as_sent(messages: list[Message]) -> list[Message]:
    """Change nothing."""
    return messages


def merged(messages: list[Message]) -> list[Message]:
    """Put all system messages into one at the start."""
    return [{"role": "system", "content": _system_text(messages)}, *_others(messages)]


def folded(messages: list[Message]) -> list[Message]:
    """Put system messages into the next user turn, those after the last one into that or a turn of their own."""
    done: list[Message] = []
    pending: list[str] = []
    for message in messages:
        if is_system(message):
            pending.append(message["content"])
        elif message["role"] == "user" and pending:
            done.append({**message, "content": "\n\n".join([*pending, message["content"]])})
            pending = []
        else:
            done.append(message)
    if pending and done and done[-1]["role"] == "user":
        done[-1] = {**done[-1], "content": "\n\n".join([done[-1]["content"], *pending])}
    elif pending:
        at = len(done) - (1 if done and done[-1]["role"] == "assistant" and "tool_calls" not in done[-1] else 0)
        done.insert(at, {"role": "user", "content": "\n\n".join(pending)})
    return done


def joined(messages: list[Message]) -> list[Message]:
    """Fold, and join neighbours of one role, for templates that insist on alternation."""
    done: list[Message] = []
    for message in folded(messages):
        plain = set(message) <= {"role", "content", "name"} and message["role"] in ("user", "assistant")
        if plain and done and done[-1]["role"] == message["role"] and set(done[-1]) <= {"role", "content", "name"}:
            done[-1] = {**done[-1], "content": f"{done[-1]['content']}\n\n{message['content']}"}
        else:
            done.append(message)
    return done


def led(messages: list[Message]) -> list[Message]:
    """Put all system messages into the first user turn, for templates that take neither them nor a further turn."""
    return joined([{"role": "user", "content": _system_text(messages)}, *_others(messages)])


def _system_text(messages: list[Message]) -> str:
    return "\n\n".join(message["content"] for message in messages if is_system(message))


def _others(messages: list[Message]) -> list[Message]:
    return [message for message in messages if not is_system(message)]
