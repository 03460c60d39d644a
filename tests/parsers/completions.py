"""Whole completions as clients get them: read by the parsers of a family, and by all that stands around them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Literal

from vllm_mlx_core.api import (
    Chat,
    Event,
    GenerateRequest,
    RenderedPrompt,
    SamplingParams,
    Settings,
    Tool,
    ToolCallArguments,
    ToolCallStart,
)
from vllm_mlx_core.engine.pipeline import CompletionPipeline
from vllm_mlx_core.engine.request_parsing import RequestParsing
from vllm_mlx_core.testing.events import check_events, fold, join

STEPS = (1, 2, 3, 7, 13, 1_000_000)
"""How many tokens the engine hands over at a time."""
_EOS = "<end of the completion>"
_TOOL_PARSERS = {each.name: each for each in entry_points(group="vllm_mlx.tool_parsers")}
_REASONING_PARSERS = {each.name: each for each in entry_points(group="vllm_mlx.reasoning_parsers")}


class MarkerTokenizer:
    """A token for each byte, and a special one for each of ``markers``."""

    def __init__(self, *markers: str) -> None:
        self._specials = {256 + i: marker for i, marker in enumerate(dict.fromkeys((_EOS, *markers)))}
        self._ids = {marker: i for i, marker in self._specials.items()}
        longest_first = sorted(self._ids, key=len, reverse=True)
        self._pieces = re.compile(f"({'|'.join(map(re.escape, longest_first))})")
        self.vocab_size = 256 + len(self._specials)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        pieces = self._pieces.split(text)
        return list(itertools.chain.from_iterable([self._ids[p]] if p in self._ids else p.encode() for p in pieces))

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(self._bytes(token_id) for token_id in token_ids).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes | None:
        return self._bytes(token_id)

    def special_token(self, token_id: int) -> str | None:
        return self._specials.get(token_id)

    def token_id(self, token: str) -> int | None:
        return self._ids.get(token)

    def _bytes(self, token_id: int) -> bytes:
        return self._specials[token_id].encode() if token_id in self._specials else bytes([token_id])


@dataclass(frozen=True)
class Reply:
    """What a client got."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    """Name and decoded arguments of each call that was completed."""
    finish: str = "stop"
    ids: tuple[str, ...] = field(default=(), compare=False)
    arguments: tuple[str, ...] = field(default=(), compare=False)
    """As they were sent, of each call that began."""


def called(*calls: tuple[str, Any], content: str = "", reasoning: str = "") -> Reply:
    """Return the reply of a model that called tools."""
    return Reply(content, reasoning, calls, "tool_calls")


def read(
    text: str,
    tool_parser: str | None = None,
    reasoning_parser: str | None = None,
    *,
    tools: Sequence[Tool | str] = (),
    prompt: str = "",
    finish: Literal["stop", "length"] = "stop",
    tools_enabled: bool = True,
    parallel_tool_calls: bool = True,
    stop: Sequence[str] = (),
) -> Reply:
    """Return what becomes of ``text``, which a model wrote after ``prompt``.

    It is read in steps of every length, with markers that are tokens of their own and with markers that are spelled
    out; all must give the same. Tools given by name take any arguments.
    """
    calls = _TOOL_PARSERS[tool_parser].load() if tool_parser else None
    reasons = _REASONING_PARSERS[reasoning_parser].load() if reasoning_parser else None
    parsers = [parser for parser in (calls, reasons) if parser is not None]
    markers = [marker for parser in parsers for marker in parser.special_tokens]
    stop_tokens = calls.stop_tokens if calls is not None else ()
    request = GenerateRequest(
        request_id="r",
        model="m",
        prompt=Chat(messages=[], tools=[Tool(tool) if isinstance(tool, str) else tool for tool in tools]),
        sampling=SamplingParams(stop=stop),
        tools_enabled=tools_enabled,
        parallel_tool_calls=parallel_tool_calls,
    )
    replies: list[Reply] = []
    for tokenizer in (MarkerTokenizer(), MarkerTokenizer(*markers, *stop_tokens)):
        rendered = RenderedPrompt(text=prompt, token_ids=[0])
        parsing = RequestParsing(request, rendered, tokenizer, Settings(), tool_parser=calls, reasoning_parser=reasons)
        tokens = tokenizer.encode(text)
        if finish == "stop":  # the engine ends where the model ends its turn
            ends = [i for i, token in enumerate(tokens) if token in parsing.stop_token_ids]
            tokens = tokens[: ends[0] + 1] if ends else [*tokens, *tokenizer.encode(_EOS)]
        replies += [_complete(parsing.pipeline(0), tokens, step, finish) for step in STEPS]
    first, *others = replies
    for other in others:
        assert other == first, "what is read depends on where the text is cut"
    return first


def _complete(
    pipeline: CompletionPipeline, tokens: Sequence[int], step: int, finish: Literal["stop", "length"]
) -> Reply:
    events: list[Event] = []
    finishes = []
    for start in range(0, len(tokens), step):
        is_last = start + step >= len(tokens)
        output = pipeline.push(tokens[start : start + step], [], finish if is_last else None, 0)
        if output is not None:
            events += output.events
            if output.finish is not None:
                finishes.append(output.finish)
    check_events(events)
    (reason,) = finishes
    folded = fold(join(events))
    arguments: dict[int, str] = {}
    for event in events:
        if isinstance(event, ToolCallStart | ToolCallArguments):
            arguments[event.index] = arguments.get(event.index, "") + getattr(event, "json", "")
    return Reply(
        folded.content,
        folded.reasoning,
        tuple(folded.calls),
        reason,
        tuple(event.id for event in events if isinstance(event, ToolCallStart)),
        tuple(arguments.values()),
    )
