"""Fields that other servers honour and this one cannot. Silence about them would change the answer unnoticed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_mlx_core.api import InvalidRequest

_STRUCTURED = "it needs structured output, which is not in this build"
_BEAMS = "there is no beam search"
_TOKEN_IDS = "token ids are not sent; POST /v1/tokenize gives those of a text"
_MEDIA = "this build reads text only"

UNSUPPORTED = {
    "allowed_token_ids": "use logit_bias",
    "audio": "this build answers in text",
    "bad_words": "use logit_bias or stop",
    "chat_template": "a template is the operator's to choose",
    "documents": "put them into a message",
    "function_call": "use tool_choice",
    "functions": "use tools",
    "grammar": _STRUCTURED,
    "guided_choice": _STRUCTURED,
    "guided_decoding_backend": _STRUCTURED,
    "guided_grammar": _STRUCTURED,
    "guided_json": _STRUCTURED,
    "guided_regex": _STRUCTURED,
    "guided_whitespace_pattern": _STRUCTURED,
    "include_stop_str_in_output": "a stop string is never part of the answer",
    "kv_transfer_params": "caches are not moved between servers",
    "length_penalty": _BEAMS,
    "logits_processors": "requests cannot bring code",
    "media_io_kwargs": _MEDIA,
    "mm_processor_kwargs": _MEDIA,
    "moderation": "this server moderates nothing",
    "prompt_embeds": "prompts are text or token ids",
    "prompt_logprobs": "completions give those of the prompt with echo and logprobs",
    "repetition_detection": "use repetition_penalty or frequency_penalty",
    "return_token_ids": _TOKEN_IDS,
    "return_tokens_as_token_ids": _TOKEN_IDS,
    "structural_tag": _STRUCTURED,
    "structured_outputs": _STRUCTURED,
    "thinking_token_budget": "thinking is not cut short; use reasoning_effort or enable_thinking",
    "truncate_prompt_tokens": "prompts are never cut",
    "use_beam_search": _BEAMS,
    "vllm_xargs": "they are for another server's plugins",
    "web_search_options": "this server searches nothing",
}
"""Set to anything but null or false, they are refused."""


def refuse(extra: Mapping[str, Any] | None) -> None:
    """Raise InvalidRequest if one of the fields that the schema does not declare asks for something refused."""
    for name, value in (extra or {}).items():
        if name in UNSUPPORTED and value is not None and value is not False:
            raise InvalidRequest(f"{name} is not supported: {UNSUPPORTED[name]}.", param=name)
