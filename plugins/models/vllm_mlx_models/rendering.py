"""From a conversation to the model's prompt text, whatever the template thinks of its messages.

A template may refuse a system message that is not the first, refuse the role altogether, or drop what it does not
expect. So arrangements are tried in turn, each further from what the client sent, until one renders and holds every
system message's text:

1. as sent;
2. system messages at the start merged into one, later ones put into the user turns around them;
3. all of them put into user turns.

Before that, the conversation is put into what the template reads: earlier calls and results in a shape that it shows
(``history``), in turns that it takes (``turns``), paired (``pairing``) by ids in its style (``call_ids``), reasoning
under its name (``past_reasoning``), and the tools described in the system message if it says nothing of them itself
(``tool_prompt``).
"""

from __future__ import annotations

from typing import Any

import msgspec

from vllm_mlx_core.api import Chat, InvalidRequest

from .arrangements import arrangements, is_system
from .call_forms import call_form
from .call_ids import renaming
from .history import call_sample, native_shape, shows_tools, written_shape
from .messages import Message, normalize, plain, tool_dicts
from .pairing import pair
from .past_reasoning import PastReasoning
from .probes import probe_tools
from .template import ChatTemplate, TemplateRefusal
from .tool_prompt import HERMES_SAMPLE, with_tool_prompt
from .tool_variables import TemplateWithTools
from .turns import Turns

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

_MAX_PROBES = 16


class ChatRenderer:
    """Renders conversations through one template. Any thread; does not mutate."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = TemplateWithTools(template)
        self._keep_developer = template.mentions("'developer'", '"developer"')
        self._rename_calls = renaming(template)
        self._reasoning = PastReasoning(template, self._probe)
        offers_tools = shows_tools(self._probe)
        native = native_shape(self._probe)
        shape = native or written_shape(self._probe, call_form(template), offers_tools=offers_tools)
        self._turns = Turns(self._probe, shape)
        self._sample: str | None = None
        """A call to show the model beside the tools; None if the template says all this itself."""
        if not offers_tools:
            self._sample = (native and call_sample(self._probe, native)) or HERMES_SAMPLE

    def _probe(self, messages: list[Message]) -> str:
        """Render messages of a conversation with tools. Raises whatever the template provokes."""
        return self._template.render(messages, probe_tools(), {"add_generation_prompt": True})

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
        messages = self._messages(chat)
        system_texts = [message["content"].strip() for message in messages if is_system(message)]
        incomplete: str | None = None
        failure: Exception | None = None
        for i, arrange in enumerate(arrangements(messages)):
            try:
                # An earlier attempt's template might have changed its messages.
                text = self._rendered(chat, arrange(messages if i == 0 else self._messages(chat)))
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
            "add_generation_prompt": chat.add_generation_prompt and not chat.continue_final_message,
        }
        messages = self._reasoning.placed(self._turns.ordered(messages))
        return self._template.render(
            messages, tool_dicts(chat.tools), plain(chat.template_kwargs, "chat_template_kwargs") | variables
        )

    def _messages(self, chat: Chat) -> list[Message]:
        """Return the messages as the template reads them."""
        messages = normalize(chat.messages, keep_developer=self._keep_developer)
        pair(messages)
        if self._rename_calls is not None:
            self._rename_calls(messages)
        if chat.continue_final_message:
            messages[-1]["content"] += _CUT
        messages = self._turns.shaped(messages)
        tools = tool_dicts(chat.tools)
        if tools is not None and self._sample is not None:
            messages = with_tool_prompt(messages, tools, self._sample)
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
