"""From a conversation to the model's prompt text, whatever the template thinks of its system messages.

A template may refuse a system message that is not the first, refuse the role altogether, or drop what it does not
expect. So arrangements are tried in turn, each further from what the client sent, until one renders and holds every
system message's text:

1. as sent;
2. all system messages merged into one at the start;
3. system messages folded into the next user turn;
4. the same, with neighbouring messages of one role joined, for templates that insist on alternation.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from vllm_mlx_core.api import Chat, InvalidRequest

from .messages import Message, normalize, tool_dicts
from .template import ChatTemplate, TemplateRefusal

Arrangement: TypeAlias = Callable[[list[Message]], list[Message]]

RESERVED_KWARGS = frozenset(
    {
        "add_generation_prompt",
        "bos_token",
        "chat_template",
        "continue_final_message",
        "conversation",
        "eos_token",
        "messages",
        "raise_exception",
        "strftime_now",
        "template",
        "tokenize",
        "tools",
    }
)
"""Names that the request has fields for, or that would change what the template is; clients may not set them."""

_CUT = "\ue000\ue001cut\ue001\ue000"
"""Marks where a continued message ends; private-use characters that no text holds."""

_NINE_CHARACTER_IDS = re.compile(r"length\s*(?:!=|==)\s*9\b")
_READS_THINKING = re.compile(r"""message(?:\.thinking\b|\[['"]thinking['"]\])""")
_MAX_PROBES = 32


class ChatRenderer:
    """Renders conversations through one template. Any thread; does not mutate."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._keep_developer = template.mentions("'developer'", '"developer"')
        self._short_ids = bool(_NINE_CHARACTER_IDS.search(template.source))
        self._thinking = bool(_READS_THINKING.search(template.source))

    def render(self, chat: Chat) -> str:
        """Return the prompt text. Raises InvalidRequest if the conversation cannot be rendered."""
        self._check(chat)
        variables = {
            **chat.template_kwargs,
            "tools": tool_dicts(chat.tools),
            "add_generation_prompt": chat.add_generation_prompt and not chat.continue_final_message,
        }
        system_texts: list[str] | None = None
        first_error: Exception | None = None
        incomplete: str | None = None
        for arrange in _arrangements(chat):
            messages = self._messages(chat)
            if system_texts is None:
                system_texts = [message["content"].strip() for message in messages if _is_system(message)]
            try:
                text = self._template.render(variables | {"messages": arrange(messages)})
            except Exception as error:  # a template is a program: it may fail in any way
                first_error = first_error or error
                continue
            if all(wanted in text for wanted in system_texts):
                return _cut(text, chat)
            incomplete = incomplete if incomplete is not None else text
        if incomplete is not None:
            # The template rewrites system text rather than dropping it; as sent is then the best reading.
            return _cut(incomplete, chat)
        assert first_error is not None
        raise self._refusal(chat, variables, first_error) from first_error

    def _messages(self, chat: Chat) -> list[Message]:
        """Return the messages afresh: a template might have changed those of an earlier attempt."""
        messages = normalize(chat.messages, keep_developer=self._keep_developer)
        if self._short_ids:
            _shorten_ids(messages)
        if self._thinking:
            for message in messages:
                if "reasoning_content" in message and not (message["content"] and "tool_calls" in message):
                    message["thinking"] = message["reasoning_content"]
        if chat.continue_final_message:
            messages[-1]["content"] += _CUT
        return messages

    def _check(self, chat: Chat) -> None:
        for key in sorted(RESERVED_KWARGS & set(chat.template_kwargs)):
            raise InvalidRequest(f"chat_template_kwargs must not hold {key!r}.", param=f"chat_template_kwargs.{key}")
        if chat.continue_final_message and chat.messages:
            last = chat.messages[-1]
            if last.get("role") != "assistant" or last.get("tool_calls"):
                raise InvalidRequest(
                    "continue_final_message needs a final assistant message without tool calls.",
                    param="continue_final_message",
                )

    def _refusal(self, chat: Chat, variables: Mapping[str, Any], error: Exception) -> InvalidRequest:
        where = self._failing_message(chat, variables)
        param = "messages" if where is None else f"messages[{where}]"
        reason = str(error).strip()[:300] or type(error).__name__
        verb = "refuses" if isinstance(error, TemplateRefusal) else "cannot render"
        return InvalidRequest(f"The model's chat template {verb} {param}: {reason}", param=param)

    def _failing_message(self, chat: Chat, variables: Mapping[str, Any]) -> int | None:
        """Return the index of the message after the longest prefix that renders; None if that is not clear."""
        count = len(chat.messages)
        if count == 1:
            return 0
        for length in range(count - 1, max(0, count - 1 - _MAX_PROBES), -1):
            try:
                self._template.render(
                    {**variables, "messages": self._messages(chat)[:length], "add_generation_prompt": False}
                )
            except Exception:  # the shorter prefix is tried next
                continue
            return length
        return None


def _arrangements(chat: Chat) -> list[Arrangement]:
    system = [i for i, message in enumerate(chat.messages) if message.get("role") in ("system", "developer")]
    if any(i > 0 for i in system):
        return [_as_sent, _merged, _folded, _joined]
    return [_as_sent, _folded, _joined] if system else [_as_sent, _joined]


def _as_sent(messages: list[Message]) -> list[Message]:
    return messages


def _is_system(message: Message) -> bool:
    return message["role"] in ("system", "developer")


def _merged(messages: list[Message]) -> list[Message]:
    text = "\n\n".join(message["content"] for message in messages if _is_system(message))
    return [{"role": "system", "content": text}, *(message for message in messages if not _is_system(message))]


def _folded(messages: list[Message]) -> list[Message]:
    done: list[Message] = []
    pending: list[str] = []
    for message in messages:
        if _is_system(message):
            pending.append(message["content"])
        elif message["role"] == "user" and pending:
            done.append({**message, "content": "\n\n".join([*pending, message["content"]])})
            pending = []
        else:
            done.append(message)
    if pending and done and done[-1]["role"] == "user":
        done[-1] = {**done[-1], "content": "\n\n".join([done[-1]["content"], *pending])}
    elif pending:
        at = len(done) - (1 if done and done[-1]["content"].endswith(_CUT) else 0)
        done.insert(at, {"role": "user", "content": "\n\n".join(pending)})
    return done


def _joined(messages: list[Message]) -> list[Message]:
    done: list[Message] = []
    for message in _folded(messages):
        plain = set(message) <= {"role", "content", "name"} and message["role"] in ("user", "assistant")
        if plain and done and done[-1]["role"] == message["role"] and set(done[-1]) <= {"role", "content", "name"}:
            done[-1] = {**done[-1], "content": f"{done[-1]['content']}\n\n{message['content']}"}
        else:
            done.append(message)
    return done


def _cut(text: str, chat: Chat) -> str:
    if not chat.continue_final_message:
        return text
    end = text.rfind(_CUT)
    if end < 0:
        raise InvalidRequest(
            "The model's chat template does not print the final message, so it cannot be continued.",
            param="continue_final_message",
        )
    return text[:end]


def _shorten_ids(messages: list[Message]) -> None:
    """Map call ids to nine letters and digits, the same for a call and its answer. Mutates the messages."""
    for message in messages:
        if isinstance(message.get("tool_call_id"), str):
            message["tool_call_id"] = _nine_characters(message["tool_call_id"])
        for call in message.get("tool_calls", ()):
            call["id"] = _nine_characters(call.get("id", call["function"]["name"]))


def _nine_characters(call_id: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9]{9}", call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]
