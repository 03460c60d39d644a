"""From the body of a chat completion request to what the engine is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_mlx_core.api import Chat, GenerateRequest, InvalidRequest, Settings, Tool
from vllm_mlx_protocols import thinking

from .messages import to_messages
from .sampling import check, to_sampling
from .schema import ChatCompletionRequest, ChatFields, Message, ResponseFormat
from .tools import choose, to_tools

_RESERVED = frozenset({"chat_template", "messages", "tools", "add_generation_prompt", "tokenize"})
"""Template variables that are not the client's to set."""


def to_generate(
    body: ChatCompletionRequest,
    settings: Settings,
    *,
    request_id: str,
    user: str | None = None,
    trace_id: str | None = None,
) -> GenerateRequest:
    """Return the engine's request. Pure. Raises InvalidRequest naming the field."""
    check(body, settings)
    check_text_only(body.response_format)
    if body.modalities is not None and body.modalities != ["text"]:
        raise InvalidRequest("modalities: this build answers in text only.", param="modalities")
    check_special_tokens(body.add_special_tokens)
    if body.echo and not body.continue_final_message:
        raise InvalidRequest("echo needs continue_final_message: true.", param="echo")
    use = choose(body.tool_choice, to_tools(body.tools))
    wins = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    return GenerateRequest(
        request_id=request_id,
        model=body.model,
        prompt=to_chat(body, body.messages, use.offered),
        sampling=to_sampling(body, settings, max_tokens=(wins, getattr(body, wins)), logprobs=_logprobs(body)),
        n=body.n or 1,
        tools_enabled=use.allowed,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        call_required=use.required,
        priority=body.priority or 0,
        cache_salt=body.cache_salt or "",
        user=user,
        trace_id=trace_id,
    )


def to_chat(body: ChatFields, messages: Sequence[Message], tools: Sequence[Tool]) -> Chat:
    """Return the conversation as the chat template gets it. Pure. Raises InvalidRequest naming the field."""
    final = bool(body.continue_final_message)
    if final and body.add_generation_prompt:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt exclude each other.", param="continue_final_message"
        )
    return Chat(
        messages=to_messages(messages),
        tools=tools,
        template_kwargs=_template_kwargs(body),
        add_generation_prompt=not final if body.add_generation_prompt is None else body.add_generation_prompt,
        continue_final_message=final,
    )


def echo(body: ChatCompletionRequest) -> str:
    """Return what each answer starts with: the text of the message that it continues, if the client wants it."""
    if not body.echo:
        return ""
    content = body.messages[-1].content or ""
    return content if isinstance(content, str) else "".join(part.text or part.refusal or "" for part in content)


def check_special_tokens(add: bool | None) -> None:
    """Raise InvalidRequest if special tokens are wanted around what a chat template has written."""
    if add:
        raise InvalidRequest("add_special_tokens: the chat template writes them already.", param="add_special_tokens")


def check_text_only(wanted: ResponseFormat | None) -> None:
    """Raise InvalidRequest for anything that only structured output could give."""
    if wanted is not None and wanted.type != "text":
        raise InvalidRequest(
            "response_format: only text for now; anything else needs structured output, which is not in this build.",
            param="response_format",
        )


def _logprobs(body: ChatCompletionRequest) -> int | None:
    if not body.logprobs:
        if body.top_logprobs:
            raise InvalidRequest("top_logprobs needs logprobs: true.", param="top_logprobs")
        return None
    return body.top_logprobs or 0


def _template_kwargs(body: ChatFields) -> dict[str, Any]:
    """Return the client's template variables; what ``chat_template_kwargs`` says itself wins over the short forms."""
    kwargs: dict[str, Any] = {}
    thinks = body.enable_thinking
    if body.reasoning_effort not in (None, "none"):
        kwargs["reasoning_effort"] = body.reasoning_effort
    elif body.reasoning_effort == "none" and thinks is None:
        thinks = False
    if thinks is not None:
        kwargs.update(thinking.switch(thinks))
    for name, value in (body.chat_template_kwargs or {}).items():
        if name in _RESERVED:
            param = f"chat_template_kwargs.{name}"
            raise InvalidRequest(f"{param} cannot be set by a request.", param=param)
        kwargs[name] = value
    return kwargs
