"""The events of a completion that wait to be delivered."""

from __future__ import annotations

from vllm_mlx_core.api import Event, ReasoningDelta, TextDelta, ToolCallArguments


class EventBuffer:
    """Gathers events. Neighbours that say more of the same thing are joined, and empty text is dropped."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def __bool__(self) -> bool:
        """Whether there is anything to deliver."""
        return bool(self._events)

    def add(self, event: Event) -> None:
        """Take the next event. Mutates."""
        events = self._events
        last = events[-1] if events else None
        if isinstance(event, TextDelta):
            if not event.text:
                return
            if isinstance(last, TextDelta):
                events[-1] = TextDelta(last.text + event.text)
                return
        elif isinstance(event, ReasoningDelta):
            if not event.text:
                return
            if isinstance(last, ReasoningDelta):
                events[-1] = ReasoningDelta(last.text + event.text)
                return
        elif isinstance(event, ToolCallArguments) and isinstance(last, ToolCallArguments) and last.index == event.index:
            events[-1] = ToolCallArguments(event.index, last.json + event.json)
            return
        events.append(event)

    def take(self) -> list[Event]:
        """Return what was gathered, and forget it. Mutates."""
        events, self._events = self._events, []
        return events
