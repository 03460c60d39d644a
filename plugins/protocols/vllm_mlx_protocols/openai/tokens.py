"""Tokenising without generating, in vLLM's shapes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vllm_mlx_core.api import GenerateRequest, InvalidRequest, ModelInfo, RenderedPrompt

from .chat_request import check_special_tokens, to_chat
from .refused import refuse
from .schema import ChatFields, TokenizeRequest
from .tools import choose, to_tools


class Tokenized(msgspec.Struct):
    """The response of ``POST /v1/tokenize``. ``token_strs`` are the tokens' texts, if the client wants them."""

    count: int
    max_model_len: int
    tokens: Sequence[int]
    token_strs: Sequence[str] | None


class Detokenized(msgspec.Struct):
    """The response of ``POST /v1/detokenize``."""

    prompt: str


def to_generate(
    body: TokenizeRequest, *, request_id: str, user: str | None = None, trace_id: str | None = None
) -> GenerateRequest:
    """Return the request whose prompt is to be rendered. Pure. Raises InvalidRequest naming the field."""
    refuse(body.model_extra)
    if body.messages is not None:
        if body.prompt is not None:
            raise InvalidRequest("prompt and messages exclude each other.", param="prompt")
        check_special_tokens(body.add_special_tokens)
        use = choose(body.tool_choice, to_tools(body.tools))
        return GenerateRequest(
            request_id=request_id,
            model=body.model,
            prompt=to_chat(body, body.messages, use.offered),
            tools_enabled=use.allowed,
            call_required=use.required,
            user=user,
            trace_id=trace_id,
        )
    if body.prompt is None:
        raise InvalidRequest("prompt or messages is required.", param="prompt")
    for field in ChatFields.model_fields:
        if getattr(body, field) is not None:
            raise InvalidRequest(f"{field} goes with messages, not with a prompt.", param=field)
    return GenerateRequest(
        request_id=request_id,
        model=body.model,
        prompt=body.prompt,
        add_special_tokens=body.add_special_tokens is not False,
        user=user,
        trace_id=trace_id,
    )


def to_response(prompt: RenderedPrompt, model: ModelInfo, texts: Sequence[str] | None) -> Tokenized:
    """Return the response. Pure."""
    return Tokenized(len(prompt.token_ids), model.context_length, prompt.token_ids, texts)
