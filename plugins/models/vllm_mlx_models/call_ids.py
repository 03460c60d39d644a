"""Ids of calls in the style a model's template insists on. Clients send those of whatever model answered before.

Every call has an id already (``pairing``).
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable
from typing import TypeAlias

from .messages import Message
from .template import ChatTemplate

Renaming: TypeAlias = Callable[[list[Message]], None]
"""Gives calls and their results other ids, the same for both. Mutates the messages."""

_NINE_CHARACTERS_ONLY = re.compile(r"length\s*(?:!=|==)\s*9\b")
_KIMI_ID = re.compile(r"functions\.[^:]+:\d+")


def renaming(template: ChatTemplate) -> Renaming | None:
    """Return how ids must be renamed for this template; None if it takes any."""
    if _NINE_CHARACTERS_ONLY.search(template.source):
        return shorten
    return name_by_function if template.mentions("<|tool_calls_section_begin|>") else None


def shorten(messages: list[Message]) -> None:
    """Map ids to nine letters and digits, for Mistral."""
    for message in messages:
        if "tool_call_id" in message:
            message["tool_call_id"] = _nine_characters(message["tool_call_id"])
        for call in message.get("tool_calls", ()):
            call["id"] = _nine_characters(call["id"])


def name_by_function(messages: list[Message]) -> None:
    """Number calls through the conversation and name their function in the id, for Kimi.

    Its own ids stay, unless one was used before. Only what was said before matters, so that a longer conversation
    starts like a shorter one.
    """
    renamed: dict[str, str] = {}
    taken: set[str] = set()
    count = 0
    for message in messages:
        for call in message.get("tool_calls", ()):
            given = call["id"]
            if given in taken or not _KIMI_ID.fullmatch(given):
                numbered = (f"functions.{call['function']['name']}:{number}" for number in itertools.count(count))
                call["id"] = next(call_id for call_id in numbered if call_id not in taken)
            renamed[given] = call["id"]
            taken.add(call["id"])
            count += 1
        if "tool_call_id" in message:
            message["tool_call_id"] = renamed.get(message["tool_call_id"], message["tool_call_id"])


def _nine_characters(call_id: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9]{9}", call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]
