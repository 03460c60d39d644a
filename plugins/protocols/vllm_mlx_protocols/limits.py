"""What one request may ask for. Beyond these is a 400 that names the field."""

from __future__ import annotations

from vllm_mlx_core.api import InvalidRequest, Settings

MAX_MESSAGES = 16_384
MAX_TOOLS = 1024
MAX_TOOL_CALLS = 1024
"""Calls in one message of the history."""
MAX_PARTS = 4096
"""Content parts in one message."""
MAX_NAME_CHARS = 256
MAX_STOPS = 64
MAX_STOP_CHARS = 1024
MAX_STOP_TOKENS = 1024
MAX_LOGIT_BIAS = 1024
MAX_TOP_LOGPROBS = 20
MAX_METADATA = 16
MIN_REPETITION_PENALTY = 0.01
"""Below, float32 arithmetic on logits ends in numbers that are none."""
MAX_SALT_CHARS = 1024
MAX_SCHEMA_BYTES = 256 * 1024
"""JSON text of one function's parameters."""
MAX_DETOKENIZE = 2**18
"""Token ids of one ``/v1/detokenize`` request."""
TOOL_NAME = r"^[^\s\x00-\x1f\x7f]+$"
"""No blanks and no control characters: the formats in which models write calls cannot hold them."""


def check_max_tokens(value: int, settings: Settings, param: str) -> None:
    """Raise InvalidRequest if a request wants more tokens than the operator grants to one."""
    most = settings.max_request_tokens
    if most is not None and value > most:
        raise InvalidRequest(f"{param} must be at most {most}.", param=param)
