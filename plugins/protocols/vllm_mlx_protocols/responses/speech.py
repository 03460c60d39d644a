"""Items that grow by text, and the events that speak of items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from .items import new_id, seal

Event: TypeAlias = dict[str, Any]
"""An event but for its sequence number, its type first."""


class Form(NamedTuple):
    """How the one part of an item is written, and how events name it and its text."""

    part: str
    field: str
    number: str
    of_part: str
    of_text: str


_MESSAGE = Form("output_text", "content", "content_index", "response.content_part", "response.output_text")
_THOUGHTS = Form("reasoning_text", "content", "content_index", "response.content_part", "response.reasoning_text")
_SUMMARY = Form(
    "summary_text",
    "summary",
    "summary_index",
    "response.reasoning_summary_part",
    "response.reasoning_summary_text",
)


class Speech:
    """A message or thoughts: an item with one part, which grows.

    ``summarised`` thoughts are those of a client that asks for a summary: all of them, but where it looks for one.
    """

    def __init__(self, kind: str, place: int, *, summarised: bool = False) -> None:
        self.kind = kind
        self._place = place
        self._pieces: list[str] = []
        self._logprobs: list[Any] = []
        if kind == "message":
            self._form = _MESSAGE
            head = {"type": kind, "status": "in_progress", "role": "assistant", "content": []}
            self.item: dict[str, Any] = {"id": new_id("msg"), **head}
        else:
            self._form = _SUMMARY if summarised else _THOUGHTS
            self.item = {"id": new_id("rs"), "type": kind, "status": "in_progress", "summary": [], "content": []}

    def open(self) -> Iterator[Event]:
        """Yield the events that it begins with."""
        yield added(self._place, self.item)
        yield self._event(f"{self._form.of_part}.added", part=self._part())

    def grow(self, text: str, logprobs: list[Any]) -> Event:
        """Return the event of more text. Mutates."""
        self._pieces.append(text)
        self._logprobs += logprobs
        extra = {"logprobs": logprobs} if self.kind == "message" else {}
        return self._event(f"{self._form.of_text}.delta", delta=text, **extra)

    def close(self, status: str, *, seals: bool) -> Iterator[Event]:
        """Yield the events that it ends with; ``item`` is complete afterwards."""
        part = self._part()
        extra = {"logprobs": self._logprobs} if self.kind == "message" else {}
        yield self._event(f"{self._form.of_text}.done", text=part["text"], **extra)
        yield self._event(f"{self._form.of_part}.done", part=part)
        self.item[self._form.field] = [part]
        self.item["status"] = status
        if seals and self.kind == "reasoning":
            self.item["encrypted_content"] = seal(part["text"])
        yield done(self._place, self.item)

    def _part(self) -> dict[str, Any]:
        part: dict[str, Any] = {"type": self._form.part, "text": "".join(self._pieces)}
        return {**part, "annotations": [], "logprobs": self._logprobs} if self.kind == "message" else part

    def _event(self, name: str, **fields: Any) -> Event:
        return of_item(name, self._place, self.item, **{self._form.number: 0}, **fields)


def of_item(name: str, place: int, item: dict[str, Any], **fields: Any) -> Event:
    """Return an event about an item that has been added."""
    return {"type": name, "item_id": item["id"], "output_index": place, **fields}


def added(place: int, item: dict[str, Any]) -> Event:
    """Return the event that an item begins with."""
    return {"type": "response.output_item.added", "output_index": place, "item": dict(item)}


def done(place: int, item: dict[str, Any]) -> Event:
    """Return the event that an item ends with."""
    return {"type": "response.output_item.done", "output_index": place, "item": dict(item)}
