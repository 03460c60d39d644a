"""A whole completion, gathered from its outputs: what is not streamed needs it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .events import ReasoningDelta, TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart
from .messages import FinishReason, Output, TokenLogprobs, Usage


@dataclass(slots=True)
class ToolCall:
    """A tool call the model made. ``arguments`` is JSON text; it is complete only if ``is_complete``."""

    id: str
    name: str
    arguments: str = ""
    is_complete: bool = False


@dataclass(slots=True)
class Completion:
    """One completion of a request. ``add`` its outputs in order; it is done when ``finish_reason`` is set."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop: str | int | None = None
    """The stop string or token id that ended it, if one did."""
    usage: Usage = field(default_factory=Usage)

    def add(self, output: Output) -> None:
        """Take the next output of this completion. Mutates."""
        for event in output.events:
            match event:
                case TextDelta(text):
                    self.text += text
                case ReasoningDelta(text):
                    self.reasoning += text
                case ToolCallStart(_, id, name):
                    self.tool_calls.append(ToolCall(id, name))
                case ToolCallArguments(index, json):
                    self.tool_calls[index].arguments += json
                case ToolCallEnd(index):
                    self.tool_calls[index].is_complete = True
        self.token_ids += output.token_ids
        self.logprobs += output.logprobs
        if output.finish is not None:
            self.finish_reason = output.finish
            self.stop = output.stop
        if output.usage is not None:
            self.usage = output.usage
