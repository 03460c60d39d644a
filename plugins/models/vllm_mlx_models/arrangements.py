"""Places for system messages that say the same, for templates that do not take them where they were sent."""

from __future__ import annotations

from collections.abc import Sequence

from .messages import Message
from .shapes import Shape, as_sent

SYSTEM_ROLES = ("system", "developer")


def arrangements(messages: Sequence[Message]) -> list[Shape]:
    """Return the arrangements worth trying for these messages, each further from what was sent."""
    system = [i for i, message in enumerate(messages) if is_system(message)]
    if any(i > 0 for i in system):
        return [as_sent, late_in_turns, all_in_turns]
    return [as_sent, all_in_turns] if system else [as_sent]


def is_system(message: Message) -> bool:
    """Return whether this is a system message under either of its names."""
    return message["role"] in SYSTEM_ROLES


def late_in_turns(messages: list[Message]) -> list[Message]:
    """Put system messages at the start into one, and later ones into user turns where they stand.

    Moved to the start they would change how every later prompt of the conversation begins, so that nothing of it
    could be taken from the prefix cache.
    """
    count = next((i for i, message in enumerate(messages) if not is_system(message)), len(messages))
    if count == 0:
        return all_in_turns(messages)
    text = "\n\n".join(message["content"] for message in messages[:count])
    return [{"role": messages[0]["role"], "content": text}, *all_in_turns(messages[count:])]


def all_in_turns(messages: list[Message]) -> list[Message]:
    """Put all system messages into user turns: that which follows, else that before, else one of their own.

    Those between calls and results come after the results.
    """
    done: list[Message] = []
    pending: list[str] = []
    for message in messages:
        if is_system(message):
            pending.append(message["content"])
        elif not pending or (message["role"] == "tool" and done and _calls(done[-1])):
            done.append(message)
        elif message["role"] == "user":
            done.append({**message, "content": _text(*pending, message["content"])})
            pending = []
        else:
            done = [*_told(done, pending), message]
            pending = []
    return _told(done, pending)


def _told(messages: list[Message], system: list[str]) -> list[Message]:
    """Return the messages with these texts added to the last one if it is the user's, else after it."""
    if not system:
        return messages
    if messages and messages[-1]["role"] == "user":
        return [*messages[:-1], {**messages[-1], "content": _text(messages[-1]["content"], *system)}]
    return [*messages, {"role": "user", "content": _text(*system)}]


def _calls(message: Message) -> bool:
    """Return whether results may follow this message."""
    return message["role"] == "tool" or "tool_calls" in message


def _text(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))
