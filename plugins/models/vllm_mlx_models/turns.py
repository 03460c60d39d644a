"""The order of turns, for templates that insist on one or lose what does not keep to it.

Agents send user messages right after results or after one another, empty answers, results whose call was cut off with
the older part of the conversation. Which of that a template cannot take is found out once, by rendering small
conversations; what is mended does not depend on the rest of a conversation, so a longer one starts like a shorter one.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import groupby

from .arrangements import is_system
from .messages import Message
from .probes import PROBE_NAMES, Show, probe_call, probe_result
from .shapes import Shape, one_after_another, result_text

_BRIDGE = "Done."
"""What the assistant is made to say between results and the user's next message."""


class Turns:
    """The changes that one template needs. Any thread; does not mutate."""

    def __init__(self, show: Show, shape: Shape) -> None:
        self._shape = shape
        self._strays = False
        self._changes: list[Shape] = []
        for change, case in _CASES:
            if not self._shown(show, [case]):
                before = self._changes
                self._changes = [known for known in _ORDER if known in before or known is change]
                if not self._shown(show, [case]):  # so it is no help
                    self._changes = before
        native = self._shown(show, _STRAYS)
        if native < len(_STRAYS):
            self._strays = True
            self._strays = self._shown(show, _STRAYS) > native

    def shaped(self, messages: list[Message]) -> list[Message]:
        """Return the messages in the template's shape, stray results told by the user if need be."""
        return self._shape(strays_from_user(messages) if self._strays else messages)

    def ordered(self, messages: list[Message]) -> list[Message]:
        """Return shaped messages in an order the template takes."""
        return one_after_another(*self._changes)(messages)

    def _shown(self, show: Show, cases: Sequence[list[Message]]) -> int:
        """Return how many of these conversations the template shows whole."""
        return sum(_is_shown(show, self.ordered(self.shaped(deepcopy(case))), case) for case in cases)


def strays_from_user(messages: list[Message]) -> list[Message]:
    """Let the user tell the results that follow no call."""
    done: list[Message] = []
    called = False
    for message in messages:
        if message["role"] != "tool":
            called = "tool_calls" in message
        elif not called:
            message = {"role": "user", "content": result_text(message["content"])}
        done.append(message)
    return done


def without_empty(messages: list[Message]) -> list[Message]:
    """Leave out answers that say nothing."""
    says = ("content", "reasoning_content", "tool_calls")
    return [message for message in messages if message["role"] != "assistant" or any(map(message.get, says))]


def joined(messages: list[Message]) -> list[Message]:
    """Join neighbours of one role, but for calls and their results."""
    done: list[Message] = []
    for role, neighbours in groupby(messages, _role_of_text):
        first, *others = neighbours
        if role is None or not others:
            done += [first, *others]
            continue
        message = dict(first)
        for key in ("content", "reasoning_content"):
            texts = [each[key] for each in (first, *others) if each.get(key)]
            if texts:
                message[key] = "\n\n".join(texts)
        done.append(message)
    return done


def bridged(messages: list[Message]) -> list[Message]:
    """Let the assistant say something between calls or their results and the user's next message."""
    done: list[Message] = []
    for message in messages:
        if message["role"] == "user" and done and (done[-1]["role"] == "tool" or "tool_calls" in done[-1]):
            done.append({"role": "assistant", "content": _BRIDGE})
        done.append(message)
    return done


def user_first(messages: list[Message]) -> list[Message]:
    """Start with an empty message of the user where the assistant would speak first."""
    at = next((i for i, message in enumerate(messages) if not is_system(message)), len(messages))
    if at < len(messages) and messages[at]["role"] == "assistant":
        return [*messages[:at], {"role": "user", "content": ""}, *messages[at:]]
    return messages


def _role_of_text(message: Message) -> str | None:
    """Return the role of a message that is an utterance and no more."""
    role: str = message["role"]
    return role if role in ("user", "assistant") and "tool_calls" not in message else None


def _is_shown(show: Show, messages: list[Message], case: list[Message]) -> bool:
    """Return whether these messages render, and hold what each of the case says."""
    try:
        text = show(messages)
    except Exception:  # refusing is one of the answers this asks for
        return False
    said = [message["content"] for message in case]
    calls = [call for message in case for call in message.get("tool_calls", ())]
    called = [value for call in calls for value in call["function"]["arguments"].values()]
    return all(mark in text for mark in (*said, *called))


_CALL = probe_call(PROBE_NAMES[0], {"value": "turn-call"})


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}


def _calling() -> Message:
    return {"role": "assistant", "content": "", "tool_calls": [_CALL]}


def _result() -> Message:
    return probe_result(_CALL, "turn-result")


_ORDER: tuple[Shape, ...] = (without_empty, joined, bridged, user_first)
_CASES: tuple[tuple[Shape, list[Message]], ...] = (
    (joined, [_user("turn-1"), _user("turn-2"), _assistant("turn-3"), _assistant("turn-4"), _user("turn-5")]),
    (bridged, [_user("turn-1"), _calling(), _result(), _user("turn-2")]),
    (user_first, [_calling(), _result(), _assistant("turn-1"), _user("turn-2")]),
    (without_empty, [_user("turn-1"), _assistant(""), _user("turn-2")]),
)
"""For each change a conversation that shows whether it is needed; the last one may need the first as well."""

_STRAYS = (
    [_user("turn-1"), {"role": "tool", "content": "turn-result"}, _user("turn-2")],
    [_user("turn-1"), _calling(), _assistant("turn-2"), _result(), _user("turn-3")],
)
