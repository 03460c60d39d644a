"""From the body of a request to what the engine is asked."""

from __future__ import annotations

from typing import Any

from vllm_mlx_core.api import Chat, GenerateRequest, InvalidRequest, SamplingParams, Settings
from vllm_mlx_protocols import thinking
from vllm_mlx_protocols.limits import check_max_tokens

from .errors import NoThreads
from .messages import to_messages
from .schema import MessagesRequest, PromptFields
from .tools import choose, to_tools


def to_generate(
    body: PromptFields,
    settings: Settings,
    *,
    request_id: str,
    user: str | None = None,
    trace_id: str | None = None,
) -> GenerateRequest:
    """Return the engine's request, of which counting tokens renders the prompt. Pure.

    Raises InvalidRequest naming the field.
    """
    _check(body)
    use = choose(body.tool_choice, to_tools(body.tools))
    messages = to_messages(body)
    continues = messages[-1]["role"] == "assistant"
    return GenerateRequest(
        request_id=request_id,
        model=body.model,
        prompt=Chat(
            messages=messages,
            tools=use.offered,
            template_kwargs=_template_kwargs(body),
            add_generation_prompt=not continues,
            continue_final_message=continues,
        ),
        sampling=_sampling(body, settings) if isinstance(body, MessagesRequest) else SamplingParams(),
        tools_enabled=use.allowed,
        parallel_tool_calls=use.parallel,
        call_required=use.required,
        user=user,
        trace_id=trace_id,
    )


def shows_thinking(body: PromptFields) -> bool:
    """Return whether the client wants to read the model's thoughts."""
    return body.thinking is None or body.thinking.display != "omitted"


def _check(body: PromptFields) -> None:
    """Raise InvalidRequest for what types alone cannot say."""
    structured = {
        "output_config.format": body.output_config is not None and body.output_config.format is not None,
        "output_format": body.output_format is not None,
    }
    for param, is_wanted in structured.items():
        if is_wanted:
            raise InvalidRequest(f"{param} needs structured output, which is not in this build.", param=param)
    if body.mcp_servers:
        raise InvalidRequest("mcp_servers: this server calls no others; declare tools.", param="mcp_servers")
    if body.thread is not None:
        raise NoThreads
    if body.thinking is not None and body.thinking.type == "enabled" and body.thinking.budget_tokens is None:
        raise InvalidRequest("thinking.budget_tokens is required.", param="thinking.budget_tokens")


def _template_kwargs(body: PromptFields) -> dict[str, Any]:
    kwargs: dict[str, Any] = {}
    if body.output_config is not None and body.output_config.effort is not None:
        kwargs["reasoning_effort"] = body.output_config.effort
    if body.thinking is not None:
        kwargs.update(thinking.switch(body.thinking.type != "disabled"))
    return kwargs


def _sampling(body: MessagesRequest, settings: Settings) -> SamplingParams:
    check_max_tokens(body.max_tokens, settings, "max_tokens")
    return SamplingParams(
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop=tuple(body.stop_sequences or ()),
    )
