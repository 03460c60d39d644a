"""What clients may send to ``POST /v1/responses``.

Items and tools stay dictionaries here: which fields one has depends on its type, and there are types that are only
passed over. ``items`` and ``tools`` read them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from vllm_mlx_protocols import limits
from vllm_mlx_protocols.metadata import Metadata
from vllm_mlx_protocols.picking import PickingFields

MAX_ITEMS = 16_384
MAX_INCLUDES = 64

Include = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True)


class Reasoning(_Fields):
    """How the model is to think."""

    effort: Annotated[str, Field(max_length=64)] | None = None
    """``none`` switches thinking off; anything else is a variable for the chat template."""
    summary: Literal["auto", "concise", "detailed"] | None = None
    """Any of them: the thoughts come in full, as the text of a summary."""
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    """The older name of ``summary``."""


class TextFormat(_Fields):
    """Only ``text`` for now."""

    type: str


class Text(_Fields):
    """What the text of the answer looks like."""

    format: TextFormat | None = None
    verbosity: str | None = None


class ResponsesRequest(_Fields, PickingFields):
    """The body of ``POST /v1/responses``. Null always means "not said"; values are never converted."""

    model: str = "default"
    input: str | Annotated[list[dict[str, Any]], Field(max_length=MAX_ITEMS)] | None = None
    instructions: str | None = None
    """Becomes the first message; it is not carried over to the next response."""
    previous_response_id: str | None = None
    store: bool | None = None
    """True unless said otherwise."""
    background: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    include: Annotated[list[Include], Field(max_length=MAX_INCLUDES)] | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=limits.MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    reasoning: Reasoning | None = None
    text: Text | None = None
    truncation: Literal["auto", "disabled"] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=limits.MAX_TOP_LOGPROBS)] | None = None
    metadata: Metadata | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None
    service_tier: str | None = None
    background_options: dict[str, Any] | None = None
    access_programs: dict[str, Any] | None = None
    image: dict[str, Any] | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    context_management: list[dict[str, Any]] | None = None
    moderation: dict[str, Any] | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None

    @property
    def stores(self) -> bool:
        """Whether the response can be fetched later."""
        return self.store is not False

    @property
    def wants_summary(self) -> bool:
        """Whether the client reads thoughts where a summary of them would be."""
        return self.reasoning is not None and bool(self.reasoning.summary or self.reasoning.generate_summary)

    def includes(self, what: Include) -> bool:
        """Return whether the answer is to contain ``what``."""
        return what in (self.include or ())
