"""Which tokens end a message: found by rendering two small conversations and looking at what follows each content.

Templates that write turns as ordinary text have no such tokens. Some write none at the end of a message, but one at the
beginning of the next: that serves as well, as long as the same role follows.
"""

from __future__ import annotations

import json
import logging
import re

from vllm_mlx_core.api import Chat, Tool

from .messages import Message
from .rendering import ChatRenderer
from .tokenizer_loading import AnyTokenizer

log = logging.getLogger(__name__)

_CONTENT = re.compile(r"probe-content-\d")
_TOOL = Tool("probe_tool", ".", {"type": "object", "properties": {"value": {"type": "string", "description": "."}}})


def message_end_ids(plain: ChatRenderer, with_tools: ChatRenderer, tokenizer: AnyTokenizer) -> frozenset[int]:
    """Return the tokens that come first after a message's content; none for a template that renders no such thing.

    ``with_tools`` renders conversations that have tools.
    """
    probes = ((plain, Chat(messages=_conversation())), (with_tools, Chat(messages=_tool_loop(), tools=(_TOOL,))))
    texts = [text for renderer, chat in probes if (text := _rendered(renderer, chat)) is not None]
    gaps = [gap for text in texts for gap in _CONTENT.split(text)[1:]]
    return frozenset(token for gap in gaps if (token := _first_special(tokenizer, gap)) is not None)


def _rendered(renderer: ChatRenderer, chat: Chat) -> str | None:
    try:
        return renderer.render(chat)
    except Exception as error:  # a template that takes no such conversation tells nothing of it
        log.debug("The chat template does not render a conversation of the kinds that there are: %s", error)
        return None


def _conversation() -> list[Message]:
    roles = ("system", "user", "assistant", "user", "assistant", "user")
    return [{"role": role, "content": f"probe-content-{i}"} for i, role in enumerate(roles)]


def _tool_loop() -> list[Message]:
    function = {"name": _TOOL.name, "arguments": json.dumps({"value": "probe-content-2"})}
    return [
        *_conversation()[:2],
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "probe0000", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "probe0000", "content": "probe-content-3"},
        *_conversation()[4:],
    ]


def _first_special(tokenizer: AnyTokenizer, gap: str) -> int | None:
    """Return the first special token of a text, or else the first that was added to the vocabulary, or None.

    What is added but not special may be markup within a message, as around a call. Runs of white space are added to
    some vocabularies, and end nothing.
    """
    token_ids = tokenizer.encode(gap)
    special = [i for i in token_ids if tokenizer.special_token(i) is not None]
    added = [i for i in token_ids if tokenizer.is_added(i) and not tokenizer.decode([i]).isspace()]
    return next(iter(special or added), None)
