"""Items that grow by text, and the events that speak of items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from .items import new_id, seal

Event: TypeAlias = dict[str, Any]
"""An event but for its sequence number, its type first."""


class Speech:
    """A message or thoughts: an item with one part, which grows."""

    def __init__(self, kind: str, place: int) -> None:
        self.kind = kind
        self._place = place
        self._pieces: list[str] = []
        self._logprobs: list[Any] = []
        if kind == "message":
            self._name = "output_text"
            head = {"type": kind, "status": "in_progress", "role": "assistant", "content": []}
            self.item: dict[str, Any] = {"id": new_id("msg"), **head}
        else:
            self._name = "reasoning_text"
            self.item = {"id": new_id("rs"), "type": kind, "status": "in_progress", "summary": [], "content": []}

    def open(self) -> Iterator[Event]:
        """Yield the events that it begins with."""
        yield added(self._place, self.item)
        yield self._of_part("response.content_part.added", part=self._part())

    def grow(self, text: str, logprobs: list[Any]) -> Event:
        """Return the event of more text. Mutates."""
        self._pieces.append(text)
        self._logprobs += logprobs
        extra = {"logprobs": logprobs} if self.kind == "message" else {}
        return self._of_part(f"response.{self._name}.delta", delta=text, **extra)

    def close(self, status: str, *, seals: bool) -> Iterator[Event]:
        """Yield the events that it ends with; ``item`` is complete afterwards."""
        part = self._part()
        extra = {"logprobs": self._logprobs} if self.kind == "message" else {}
        yield self._of_part(f"response.{self._name}.done", text=part["text"], **extra)
        yield self._of_part("response.content_part.done", part=part)
        self.item["content"] = [part]
        self.item["status"] = status
        if seals and self.kind == "reasoning":
            self.item["encrypted_content"] = seal(part["text"])
        yield done(self._place, self.item)

    def _part(self) -> dict[str, Any]:
        text = "".join(self._pieces)
        if self.kind == "message":
            return {"type": self._name, "text": text, "annotations": [], "logprobs": self._logprobs}
        return {"type": self._name, "text": text}

    def _of_part(self, name: str, **fields: Any) -> Event:
        return of_item(name, self._place, self.item, content_index=0, **fields)


def of_item(name: str, place: int, item: dict[str, Any], **fields: Any) -> Event:
    """Return an event about an item that has been added."""
    return {"type": name, "item_id": item["id"], "output_index": place, **fields}


def added(place: int, item: dict[str, Any]) -> Event:
    """Return the event that an item begins with."""
    return {"type": "response.output_item.added", "output_index": place, "item": dict(item)}


def done(place: int, item: dict[str, Any]) -> Event:
    """Return the event that an item ends with."""
    return {"type": "response.output_item.done", "output_index": place, "item": dict(item)}
