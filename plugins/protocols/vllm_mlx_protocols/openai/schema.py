"""What clients may send to the two generating endpoints, and to have a prompt tokenised."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from vllm_mlx_protocols import limits

from .ignored import IgnoredChatFields, IgnoredFields, RequestBody
from .sampling import SamplingFields


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", use_attribute_docstrings=True)


class ContentPart(_Part):
    """One part of a message's content."""

    type: str
    text: str | None = None
    refusal: str | None = None


class FunctionCall(_Part):
    """The function that a past call named; ``arguments`` is JSON text or an object."""

    name: Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS)]
    arguments: str | dict[str, Any] | None = None


class ToolCall(_Part):
    """A call that the assistant made."""

    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionCall


class Message(_Part):
    """One message, whatever its role."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[ContentPart], Field(max_length=limits.MAX_PARTS)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=limits.MAX_TOOL_CALLS)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """Another name for ``reasoning_content``."""
    function_call: dict[str, Any] | None = None


class Function(_Part):
    """A function the model may call; ``parameters`` is a JSON Schema."""

    name: Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS, pattern=limits.TOOL_NAME)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolDefinition(_Part):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    function: Function


class ResponseFormat(_Part):
    """Only ``text`` for now."""

    type: str


Messages: TypeAlias = Annotated[list[Message], Field(min_length=1, max_length=limits.MAX_MESSAGES)]
TokenIds: TypeAlias = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)]


class ChatFields(RequestBody):
    """What makes a prompt of messages."""

    tools: Annotated[list[ToolDefinition], Field(max_length=limits.MAX_TOOLS)] | None = None
    """An empty list is the same as none."""
    tool_choice: str | dict[str, Any] | None = None
    """Only the tools that it allows are shown to the model."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Variables for the chat template."""
    enable_thinking: bool | None = None
    """Short for the variable of that name."""
    reasoning_effort: str | None = None
    """``none`` switches thinking off; anything else is a variable for the chat template."""
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


class ChatCompletionRequest(SamplingFields, ChatFields, IgnoredChatFields):
    """The body of ``POST /v1/chat/completions``."""

    messages: Messages
    max_completion_tokens: int | None = None
    """Wins over ``max_tokens``."""
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=limits.MAX_TOP_LOGPROBS)] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    modalities: list[str] | None = None
    include_reasoning: bool | None = None
    """False: the model may think, but its reasoning is not sent."""
    echo: bool | None = None
    """The answer starts with the text of the message that it continues."""
    add_special_tokens: bool | None = None
    """Never true: the chat template writes them."""

    @property
    def num_completions(self) -> int:
        """How many are generated for it."""
        return self.n or 1


class CompletionRequest(SamplingFields, IgnoredFields):
    """The body of ``POST /v1/completions``."""

    prompt: str | Annotated[list[str], Field(min_length=1)] | TokenIds | Annotated[list[TokenIds], Field(min_length=1)]
    """At most as many as the server makes completions for one request."""
    logprobs: Annotated[int, Field(ge=0, le=limits.MAX_TOP_LOGPROBS)] | None = None
    echo: bool | None = None
    best_of: Annotated[int, Field(ge=1)] | None = None
    """How many completions are generated; the ``n`` most likely are sent."""
    suffix: str | None = None
    """What comes after the text that is wanted."""
    add_special_tokens: bool | None = None
    """False: text prompts get no beginning-of-text token."""
    response_format: ResponseFormat | None = None

    @property
    def num_completions(self) -> int:
        """How many are generated for it."""
        is_one = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        return (1 if is_one else len(self.prompt)) * (self.best_of or self.n or 1)


class TokenizeRequest(ChatFields):
    """The body of ``POST /v1/tokenize``: a ``prompt``, or ``messages`` and what goes with them."""

    model: str = "default"
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    """Send the text of each token as well."""


class DetokenizeRequest(RequestBody):
    """The body of ``POST /v1/detokenize``."""

    model: str = "default"
    tokens: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=limits.MAX_DETOKENIZE)]
