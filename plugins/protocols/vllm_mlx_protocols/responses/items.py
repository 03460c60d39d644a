"""The items of a conversation: what a request, a response and the store hold, as plain dictionaries."""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from vllm_mlx_protocols import limits
from vllm_mlx_protocols.reading import Fields

Item: TypeAlias = Mapping[str, Any]

_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
}
_SEAL = b"vllm-mlx:"
"""What tells our own encrypted content from that of other servers."""


class Part(Fields):
    """One part of a content."""

    type: str
    text: str | None = None
    refusal: str | None = None


Content: TypeAlias = str | Annotated[list[Part], Field(max_length=limits.MAX_PARTS)]


class MessageItem(Fields):
    """Something that was said."""

    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class CallItem(Fields):
    """A function that the model called; ``arguments`` is JSON text."""

    call_id: str
    name: Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS)]
    arguments: str
    status: str | None = None


class CustomCallItem(Fields):
    """A custom tool that the model called with a text."""

    call_id: str
    name: Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS)]
    input: str


class OutputItem(Fields):
    """What a function or a custom tool returned."""

    call_id: str
    output: Content


class ReasoningItem(Fields):
    """What the model thought."""

    summary: Annotated[list[Part], Field(max_length=limits.MAX_PARTS)] | None = None
    content: Annotated[list[Part], Field(max_length=limits.MAX_PARTS)] | None = None
    encrypted_content: str | None = None

    @property
    def text(self) -> str:
        """The thoughts; empty if they are another server's secret."""
        if self.encrypted_content and not self.content:
            return unseal(self.encrypted_content)
        return "".join(part.text or "" for part in self.content or self.summary or ())


class ReferenceItem(Fields):
    """Stands for an item that the server has."""

    id: str


def kind(item: Item) -> str:
    """Return an item's type: messages may leave theirs out, and so may references, which have nothing but an id."""
    given = item.get("type")
    if given is None:
        return "item_reference" if "id" in item and "role" not in item else "message"
    return given if isinstance(given, str) else ""


def new_id(prefix: str) -> str:
    """Return an id that nothing else has."""
    return f"{prefix}_{secrets.token_hex(16)}"


def normalised(given: str | Sequence[Item] | None) -> list[dict[str, Any]]:
    """Return a request's input as the items that are stored and listed: each with a type and an id."""
    if given is None:
        return []
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    result = []
    ids: set[str] = set()
    for item in given:
        type_ = kind(item)
        full = {**item, "type": type_}
        if not isinstance(full.get("id"), str) or full["id"] in ids:  # pages of a list go on after an id
            full["id"] = new_id(_PREFIXES.get(type_, "item"))
        if type_ == "message":
            full.setdefault("status", "completed")
            if isinstance(full.get("content"), str):
                said = full.get("role") == "assistant"
                part = {"type": "output_text", "annotations": []} if said else {"type": "input_text"}
                full["content"] = [{**part, "text": full["content"]}]
        ids.add(full["id"])
        result.append(full)
    return result


def seal(text: str) -> str:
    """Return thoughts as the opaque text that clients without a store send back."""
    return base64.b64encode(_SEAL + text.encode("utf-8", "replace")).decode()


def unseal(sealed: str) -> str:
    """Return the thoughts again; nothing if it is not of ``seal``."""
    try:
        data = base64.b64decode(sealed, validate=True)
    except (binascii.Error, ValueError):
        return ""
    return data.removeprefix(_SEAL).decode("utf-8", "replace") if data.startswith(_SEAL) else ""
