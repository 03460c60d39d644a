"""From the body of a request to what the engine is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_mlx_core.api import Chat, GenerateRequest, InvalidRequest, SamplingParams, Settings
from vllm_mlx_protocols import thinking
from vllm_mlx_protocols.limits import check_max_tokens

from .conversation import Conversation
from .items import Item
from .schema import ResponsesRequest
from .tools import Toolbox

_REFUSED = {
    "conversation": "conversations are not kept; use previous_response_id",
    "prompt": "there are no stored prompts; send instructions and input",
    "context_management": "conversations are not compacted",
    "moderation": "nothing is moderated",
}


def check(body: ResponsesRequest, settings: Settings) -> None:
    """Raise InvalidRequest for what types alone cannot say."""
    for name, reason in _REFUSED.items():
        if getattr(body, name):
            raise InvalidRequest(f"{name} is not supported: {reason}.", param=name)
    if body.text is not None and body.text.format is not None and body.text.format.type != "text":
        raise InvalidRequest(
            "text.format: only text for now; anything else needs structured output, which is not in this build.",
            param="text.format",
        )
    if body.background and not body.stores:
        raise InvalidRequest("background needs store: true, as the response is fetched later.", param="background")
    if body.background and body.stream:
        raise InvalidRequest("stream: a background response cannot be streamed; poll it.", param="stream")
    if body.max_output_tokens is not None:
        check_max_tokens(body.max_output_tokens, settings, "max_output_tokens")


def to_generate(
    body: ResponsesRequest,
    toolbox: Toolbox,
    history: Sequence[Item],
    items: Sequence[Item],
    *,
    request_id: str,
    user: str | None = None,
    trace_id: str | None = None,
) -> GenerateRequest:
    """Return the engine's request: ``history`` comes from the store, ``items`` from the client.

    Pure. Raises InvalidRequest naming the field.
    """
    conversation = Conversation(body.instructions)
    conversation.extend(history, where="previous_response_id")
    conversation.extend(items)
    if not conversation.messages:
        raise InvalidRequest("input is required: there is nothing to answer.", param="input")
    return GenerateRequest(
        request_id=request_id,
        model=body.model,
        prompt=Chat(messages=conversation.messages, tools=toolbox.tools, template_kwargs=_template_kwargs(body)),
        sampling=SamplingParams(
            max_tokens=body.max_output_tokens,
            **body.picking(),
            logprobs=(body.top_logprobs or 0) if wants_logprobs(body) else None,
        ),
        tools_enabled=toolbox.allowed,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        call_required=toolbox.required,
        priority=body.priority or 0,
        user=user,
        trace_id=trace_id,
    )


def wants_logprobs(body: ResponsesRequest) -> bool:
    """Return whether the text comes with log-probabilities: ``include`` says so, and a number of them implies it."""
    return body.includes("message.output_text.logprobs") or bool(body.top_logprobs)


def _template_kwargs(body: ResponsesRequest) -> dict[str, Any]:
    effort = body.reasoning.effort if body.reasoning is not None else None
    if effort is None:
        return {}
    if effort == "none":
        return {**thinking.switch(False)}
    return {"reasoning_effort": effort}
