"""Cohere's calls: a list of actions, beside an answer with citations."""

from __future__ import annotations

from collections.abc import Iterable

from vllm_mlx_core.api import Chunk, ParserContext, TextDelta, ToolCallArguments, ToolCallStart, ToolEvent
from vllm_mlx_parsers.cohere_response import RESPONSE_MARKERS, ResponseText

from .json_call import JSONCall
from .json_calls import JSONCallsParser


class CohereToolParser(JSONCallsParser):
    """``<|START_ACTION|>[{"tool_call_id": …, "tool_name": …, "parameters": {…}}, …]<|END_ACTION|>``.

    The answer stands in ``<|START_RESPONSE|>…<|END_RESPONSE|>`` (Command R7B, A) or ``<|START_TEXT|>…<|END_TEXT|>``;
    these markers and the tags of citations (``<co>text</co: 0:[1]>``) are not content. The model's ids count the calls
    of a conversation; as it may start again at 0 in every turn, calls get ids of their own.
    """

    families = "Command R7B, Command A, North"
    sample = (
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}\n]'
        "<|END_ACTION|>"
    )
    starts = ("<|START_ACTION|>",)
    ends = ("<|END_ACTION|>",)
    special_tokens = (*starts, *ends, *RESPONSE_MARKERS)

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._response = ResponseText()

    def new_call(self) -> JSONCall:
        """Return what reads an action."""
        return JSONCall(name_key="tool_name", argument_keys=("parameters", "arguments"))

    def feed(self, chunk: Chunk) -> Iterable[ToolEvent]:
        """Take the next chunk and return the events that are now certain."""
        events = super().feed(chunk)
        for event in events:
            if not isinstance(event, ToolCallArguments):
                return self._clean(events)
        return events

    def finish(self) -> Iterable[ToolEvent]:
        """Return the events for whatever was held back."""
        events = self._clean(super().finish())
        if text := self._response.finish():
            events.append(TextDelta(text))
        return events

    def _clean(self, events: Iterable[ToolEvent]) -> list[ToolEvent]:
        """Return ``events`` with the markup taken out of the text; what is held of it comes before a call."""
        cleaned: list[ToolEvent] = []
        for event in events:
            if isinstance(event, TextDelta):
                text = self._response.feed(event.text)
                if text:
                    cleaned.append(event if text is event.text else TextDelta(text))
                continue
            if isinstance(event, ToolCallStart) and (text := self._response.finish()):
                cleaned.append(TextDelta(text))
            cleaned.append(event)
        return cleaned
