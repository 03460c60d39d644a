"""From the bodies of the generating requests to what the engine is asked."""

from __future__ import annotations

from typing import Any

from vllm_mlx_core.api import Chat, GenerateRequest, Infill, InvalidRequest, ModelInfo, Prompt, Settings
from vllm_mlx_protocols import thinking
from vllm_mlx_protocols.http import Caller
from vllm_mlx_protocols.openai import schema as openai
from vllm_mlx_protocols.openai.tools import to_tools

from . import schema
from .messages import continues, refuse_images, to_messages
from .options import to_sampling


def to_generate(
    body: schema.ChatRequest | schema.GenerateRequest,
    model: ModelInfo,
    settings: Settings,
    *,
    request_id: str,
    caller: Caller,
) -> GenerateRequest:
    """Return the engine's request. Pure. Raises InvalidRequest naming the field."""
    if body.format:
        raise InvalidRequest("format: it needs structured output, which is not in this build.", param="format")
    if body.think and model.capabilities.get("reasoning") is False:
        raise InvalidRequest(f"think: {model.id} does not support thinking.", param="think")
    return GenerateRequest(
        request_id=request_id,
        model=model.id,
        prompt=_conversation(body) if isinstance(body, schema.ChatRequest) else _prompt(body),
        sampling=to_sampling(body.options, settings, logprobs=_logprobs(body)),
        user=caller.user,
        trace_id=caller.trace_id,
    )


def load_reason(body: schema.ChatRequest | schema.GenerateRequest) -> str | None:
    """Return ``load`` or ``unload`` if the body asks for that and for no answer."""
    wanted = body.messages if isinstance(body, schema.ChatRequest) else body.prompt or body.suffix
    if wanted:
        return None
    now = body.keep_alive == 0 or body.keep_alive in ("0", "0s", "0m", "0h")
    return "unload" if now else "load"


def _conversation(body: schema.ChatRequest) -> Chat:
    messages = body.messages or []
    continuing = continues(messages)
    return Chat(
        messages=to_messages(messages),
        tools=to_tools([openai.ToolDefinition(type="function", function=each.function) for each in body.tools or ()]),
        template_kwargs=_template_kwargs(body.think),
        add_generation_prompt=not continuing,
        continue_final_message=continuing,
    )


def _prompt(body: schema.GenerateRequest) -> Prompt:
    refuse_images(body.images, "images")
    if body.template:
        raise InvalidRequest("template: a template is the operator's to choose.", param="template")
    if body.context:
        raise InvalidRequest("context is not supported: send messages to /api/chat.", param="context")
    if body.suffix:
        _refuse_beside("suffix", {"raw": body.raw, "system": body.system, "think": body.think})
        return Infill(prefix=body.prompt or "", suffix=body.suffix)
    prompt = body.prompt or ""
    if body.raw:
        _refuse_beside("raw", {"system": body.system, "think": body.think})
        return prompt
    messages = [{"role": "system", "content": body.system}] if body.system else []
    return Chat(messages=[*messages, {"role": "user", "content": prompt}], template_kwargs=_template_kwargs(body.think))


def _refuse_beside(kind: str, others: dict[str, Any]) -> None:
    """Raise InvalidRequest for what only a chat template could bring to the model."""
    for name, value in others.items():
        if value:
            raise InvalidRequest(f"{name} and {kind} exclude each other: no chat template is used.", param=name)


def _template_kwargs(think: schema.Think | None) -> dict[str, Any]:
    if think is None:
        return {}
    switches: dict[str, Any] = {**thinking.switch(bool(think))}
    return {**switches, "reasoning_effort": think} if isinstance(think, str) else switches


def _logprobs(body: schema.GeneratingFields) -> int | None:
    if not body.logprobs:
        if body.top_logprobs:
            raise InvalidRequest("top_logprobs needs logprobs: true.", param="top_logprobs")
        return None
    return body.top_logprobs or 0
