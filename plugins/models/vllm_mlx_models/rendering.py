"""From a conversation to the model's prompt text, whatever the template thinks of its messages.

A template may refuse a system message that is not the first, refuse the role altogether, or drop what it does not
expect. So arrangements are tried in turn, each further from what the client sent, until one renders and holds every
system message's text:

1. as sent;
2. all system messages merged into one at the start;
3. system messages folded into the next user turn;
4. the same, with neighbouring messages of one role joined, for templates that insist on alternation;
5. all system messages in the first user turn.

Calls that a template shows only one at a time are given to it so, see ``single_calls``.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from vllm_mlx_core.api import Chat, InvalidRequest

from .arrangements import arrangements, is_system
from .messages import Message, normalize, plain, tool_dicts
from .single_calls import one_call_each, shows_single_calls_only
from .template import ChatTemplate, TemplateRefusal

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
_TOOL_VARIABLES = ("xml_tools",)
"""Other names that templates read the tools from, where they do not read ``tools``."""
_MAX_PROBES = 16


class ChatRenderer:
    """Renders conversations through one template. Any thread; does not mutate."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._keep_developer = template.mentions("'developer'", '"developer"')
        self._short_ids = bool(_NINE_CHARACTER_IDS.search(template.source))
        self._thinking = bool(_READS_THINKING.search(template.source))
        self._tool_variables = ("tools", *(name for name in _TOOL_VARIABLES if template.mentions(name)))
        self._one_call_each = template.mentions("tool_calls") and shows_single_calls_only(template.render)

    def render(self, chat: Chat) -> str:
        """Return the prompt text. Raises InvalidRequest if the conversation cannot be rendered."""
        self._check(chat)
        try:
            return _cut(self._arranged(chat), chat)
        except InvalidRequest:
            raise
        except Exception as error:  # a template is a program: it may fail in any way
            raise self._refusal(chat, error) from error

    def _arranged(self, chat: Chat) -> str:
        """Return the text of the first arrangement that loses nothing. Raises what the last one provoked."""
        system_texts = [message["content"].strip() for message in self._messages(chat) if is_system(message)]
        incomplete: str | None = None
        failure: Exception | None = None
        for arrange in arrangements([str(message.get("role")) for message in chat.messages]):
            try:
                text = self._rendered(chat, arrange(self._messages(chat)))
            except Exception as error:  # the next arrangement is tried
                failure = error
                continue
            if all(wanted in text for wanted in system_texts):
                return text
            incomplete = incomplete if incomplete is not None else text
        if incomplete is not None:
            # The template rewrites system text rather than dropping it; as sent is then the best reading.
            return incomplete
        assert failure is not None
        raise failure

    def _rendered(self, chat: Chat, messages: list[Message]) -> str:
        """Apply the template. It gets copies of everything, because it may append to lists."""
        variables: dict[str, Any] = {
            "messages": messages,
            "add_generation_prompt": chat.add_generation_prompt and not chat.continue_final_message,
        }
        tools = tool_dicts(chat.tools)
        names = self._tool_variables if tools else ("tools",)
        try:
            return self._template.render(dict.fromkeys(names, tools) | plain(chat.template_kwargs) | variables)
        except TemplateRefusal:
            raise
        except Exception:
            if tools is not None:
                raise
            # Templates for tool use loop over the tools, be there some or not.
            return self._template.render({"tools": []} | plain(chat.template_kwargs) | variables)

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
        return one_call_each(messages) if self._one_call_each else messages

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

    def _refusal(self, chat: Chat, error: Exception) -> InvalidRequest:
        where = self._failing_message(chat)
        param = "messages" if where is None else f"messages[{where}]"
        reason = str(error).strip()[:300] or type(error).__name__
        verb = "refuses" if isinstance(error, TemplateRefusal) else "cannot render"
        return InvalidRequest(f"The model's chat template {verb} {param}: {reason}", param=param)

    def _failing_message(self, chat: Chat) -> int | None:
        """Return the index of the message after the longest prefix that renders; None if that is not clear."""
        count = len(chat.messages)
        if count == 1:
            return 0
        shorter = msgspec.structs.replace(chat, add_generation_prompt=False, continue_final_message=False)
        for length in range(count - 1, max(0, count - 1 - _MAX_PROBES), -1):
            try:
                self._arranged(msgspec.structs.replace(shorter, messages=chat.messages[:length]))
            except Exception:  # the shorter prefix is tried next
                continue
            return length
        return None


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
