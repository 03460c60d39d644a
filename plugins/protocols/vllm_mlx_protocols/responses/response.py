"""The response object."""

from __future__ import annotations

import time
from typing import Any

from vllm_mlx_core.api import InvalidRequest, Overloaded, RateLimited, RequestError, Usage

from .schema import ResponsesRequest
from .tools import Toolbox


def new_response(body: ResponsesRequest, toolbox: Toolbox, *, response_id: str, model: str) -> dict[str, Any]:
    """Return the object as it is before the model has said anything. What was not said is the model's own default."""
    reasoning = body.reasoning
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": bool(body.background),
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "model": model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {
            "effort": reasoning.effort if reasoning is not None else None,
            "summary": "detailed" if body.wants_summary else None,
        },
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": body.stores,
        "temperature": body.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": list(toolbox.given),
        "top_logprobs": body.top_logprobs or 0,
        "top_p": body.top_p,
        "truncation": body.truncation or "disabled",
        "usage": None,
        "user": body.user,
    }


def finished(
    response: dict[str, Any], output: list[dict[str, Any]], usage: Usage | None, *, cut_off: bool
) -> dict[str, Any]:
    """Return ``response`` with what the model said; ``cut_off`` means that a limit ended it."""
    return {
        **response,
        "status": "incomplete" if cut_off else "completed",
        "completed_at": None if cut_off else int(time.time()),
        "incomplete_details": {"reason": "max_output_tokens"} if cut_off else None,
        "output": output,
        "usage": _usage(usage or Usage()),
    }


def failed(response: dict[str, Any], error: RequestError, output: list[dict[str, Any]]) -> dict[str, Any]:
    """Return ``response`` as one that ended with ``error``. It is stored only if it ran in the background."""
    return {
        **response,
        "store": response["store"] and response["background"],
        "status": "failed",
        "error": {"code": error_code(error), "message": error.message},
        "output": output,
    }


def error_code(error: RequestError) -> str:
    """Return the code under which clients of this protocol look for what to do next."""
    if error.code is not None:
        return error.code
    if isinstance(error, InvalidRequest):
        return "invalid_prompt"
    return "rate_limit_exceeded" if isinstance(error, (RateLimited, Overloaded)) else "server_error"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": 0,  # nothing is written on request: the cache keeps conversations by itself
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
