"""What clients may send."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from vllm_mlx_protocols import limits
from vllm_mlx_protocols.openai.schema import Function

from .options import Options

MODEL_NAME_CHARS = 1024


class Fields(BaseModel):
    """Null always means "not said". Unknown fields are ignored; values are never converted to another type."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True)


class CalledFunction(Fields):
    """The function that a past call named, and its arguments as an object."""

    name: Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS)]
    arguments: dict[str, Any] | None = None


class ToolCall(Fields):
    """A call that the assistant made."""

    id: str | None = None
    function: CalledFunction


class Message(Fields):
    """One message, whatever its role."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: list[Any] | None = None
    """Refused unless it is empty: models here read text."""
    tool_calls: Annotated[list[ToolCall], Field(max_length=limits.MAX_TOOL_CALLS)] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class ToolDefinition(Fields):
    """A tool; functions are the only kind."""

    type: Literal["function"] | None = None
    function: Function


Think: TypeAlias = bool | Literal["low", "medium", "high", "max"]
KeepAlive: TypeAlias = float | str
"""Seconds, or a duration such as ``5m``."""


class GeneratingFields(Fields):
    """What both generating routes read."""

    model: Annotated[str, Field(min_length=1, max_length=MODEL_NAME_CHARS)]
    stream: bool | None = None
    """True unless said otherwise."""
    think: Think | None = None
    """Whether the model is to think, or how hard. False: no thoughts are sent, either."""
    options: Options | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=limits.MAX_TOP_LOGPROBS)] | None = None
    format: str | dict[str, Any] | None = None
    """Refused unless it is empty: structured output is not in this build."""
    keep_alive: KeepAlive | None = None
    """Ignored, but for what a request without a prompt is answered: models stay loaded."""
    truncate: bool | None = None
    """Ignored: a prompt that does not fit is refused, never cut."""
    shift: bool | None = None
    """Ignored: an answer ends where the context does."""


class ChatRequest(GeneratingFields):
    """The body of ``POST /api/chat``. Without messages it asks for the model to be loaded."""

    messages: Annotated[list[Message], Field(max_length=limits.MAX_MESSAGES)] | None = None
    tools: Annotated[list[ToolDefinition], Field(max_length=limits.MAX_TOOLS)] | None = None


class GenerateRequest(GeneratingFields):
    """The body of ``POST /api/generate``. Without prompt and suffix it asks for the model to be loaded."""

    prompt: str | None = None
    suffix: str | None = None
    """What comes after the text that is wanted."""
    system: str | None = None
    raw: bool | None = None
    """True: the prompt is tokenised as it is, without a chat template."""
    template: str | None = None
    """Refused unless it is empty: the template is the operator's to choose."""
    context: list[int] | None = None
    """Refused unless it is empty: it is never given out."""
    images: list[Any] | None = None
    """Refused unless it is empty, as in messages."""
    width: int | None = None
    """Ignored, like the two below: it is for models that draw."""
    height: int | None = None
    steps: int | None = None


class NamedRequest(Fields):
    """A body that names a model: that of ``POST /api/show``."""

    model: Annotated[str, Field(max_length=MODEL_NAME_CHARS)] | None = None
    name: Annotated[str, Field(max_length=MODEL_NAME_CHARS)] | None = None
    """The older name of ``model``."""
    verbose: bool | None = None
    """Ignored: there is no more to tell."""


class PullRequest(NamedRequest):
    """The body of ``POST /api/pull``."""

    stream: bool | None = None
    insecure: bool | None = None
    """Ignored: nothing is fetched."""
