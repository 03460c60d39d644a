"""What clients may send to the two routes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from vllm_mlx_protocols import limits

from .ignored import Fields, IgnoredFields, IgnoredMessageFields


class TextBlock(Fields):
    """One block of a system prompt or of a document; only texts can be."""

    type: str
    text: str | None = None


class DocumentSource(Fields):
    """Where a document comes from: ``data`` holds a plain text, ``content`` a text or blocks."""

    type: str | None = None
    data: str | None = None
    content: str | Annotated[list[TextBlock], Field(max_length=limits.MAX_PARTS)] | None = None


class ResultBlock(Fields):
    """One block of a tool's result, and what every block of a message may hold as well."""

    type: str
    text: str | None = None
    title: str | None = None
    context: str | None = None
    source: DocumentSource | str | None = None
    """Of a document, an image (whatever it is), or the address of a search result."""


class SearchResultBlock(ResultBlock):
    """A result block with blocks of its own, as search results have them."""

    content: Annotated[list[TextBlock], Field(max_length=limits.MAX_PARTS)] | None = None


class Block(ResultBlock):
    """One block of a message, whatever its type."""

    thinking: str | None = None
    id: str | None = None
    name: Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS)] | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | Annotated[list[SearchResultBlock], Field(max_length=limits.MAX_PARTS)] | None = None
    """Of a tool's result, or of a search result."""
    is_error: bool | None = None


class Message(Fields):
    """One message; coding agents put reminders between the turns as ``system``."""

    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[Block], Field(max_length=limits.MAX_PARTS)]


class ToolDefinition(Fields):
    """A tool. Any ``type`` but ``custom`` is one that Anthropic's servers know."""

    type: str | None = None
    name: Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS, pattern=limits.TOOL_NAME)] | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoice(Fields):
    """Whether the model may or must call tools."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Fields):
    """Whether the model is to think, and whether the client wants to read it."""

    type: Literal["enabled", "adaptive", "between_tools", "disabled"]
    budget_tokens: Annotated[int, Field(ge=1)] | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputConfig(Fields):
    """How the model is to answer."""

    effort: Annotated[str, Field(max_length=limits.MAX_NAME_CHARS)] | None = None
    format: dict[str, Any] | None = None


class PromptFields(Fields):
    """What makes the prompt, on both routes."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1, max_length=limits.MAX_MESSAGES)]
    system: str | Annotated[list[TextBlock], Field(max_length=limits.MAX_PARTS)] | None = None
    tools: Annotated[list[ToolDefinition], Field(max_length=limits.MAX_TOOLS)] | None = None
    """An empty list is the same as none."""
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    """If it is left out, the model does what it does by itself."""
    output_config: OutputConfig | None = None
    output_format: dict[str, Any] | None = None
    """Refused: it needs structured output."""
    mcp_servers: list[Any] | None = None
    """Refused unless it is empty: this server calls no others."""
    thread: dict[str, Any] | None = None
    """Refused: conversations are not kept between requests."""


class CountTokensRequest(PromptFields, IgnoredFields):
    """The body of ``POST /v1/messages/count_tokens``."""


class MessagesRequest(PromptFields, IgnoredMessageFields):
    """The body of ``POST /v1/messages``."""

    max_tokens: Annotated[int, Field(ge=1)]
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    """0 and -1 switch it off."""
    stop_sequences: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=limits.MAX_STOP_CHARS)]],
            Field(max_length=limits.MAX_STOPS),
        ]
        | None
    ) = None
