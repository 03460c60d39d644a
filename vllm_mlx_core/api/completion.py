"""A whole completion, gathered from its outputs: what is not streamed needs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .events import ReasoningDelta, TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart
from .messages import FinishReason, Output, PromptToken, TokenLogprobs, Usage


@dataclass(slots=True)
class ToolCall:
    """A tool call the model made. ``arguments`` is JSON text; it is complete only if ``is_complete``."""

    id: str
    name: str
    arguments: str = ""
    is_complete: bool = False


@dataclass(slots=True)
class Said:
    """Text or reasoning that nothing else came between."""

    kind: Literal["text", "reasoning"]
    text: str


@dataclass(slots=True)
class Completion:
    """One completion of a request. ``add`` its outputs in order; it is done when ``finish_reason`` is set."""

    parts: list[Said | ToolCall] = field(default_factory=list)
    """All of it in the order in which it came; the next three are the same, each kind on its own."""
    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[PromptToken] = field(default_factory=list)
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
                    self._say("text", text)
                case ReasoningDelta(text):
                    self.reasoning += text
                    self._say("reasoning", text)
                case ToolCallStart(_, id, name):
                    call = ToolCall(id, name)
                    self.tool_calls.append(call)
                    self.parts.append(call)
                case ToolCallArguments(index, json):
                    self.tool_calls[index].arguments += json
                case ToolCallEnd(index):
                    self.tool_calls[index].is_complete = True
        self.token_ids += output.token_ids
        self.logprobs += output.logprobs
        self.prompt_logprobs += output.prompt_logprobs
        if output.finish is not None:
            self.finish_reason = output.finish
            self.stop = output.stop
        if output.usage is not None:
            self.usage = output.usage

    def _say(self, kind: Literal["text", "reasoning"], text: str) -> None:
        last = self.parts[-1] if self.parts else None
        if isinstance(last, Said) and last.kind == kind:
            last.text += text
        elif text:
            self.parts.append(Said(kind, text))
