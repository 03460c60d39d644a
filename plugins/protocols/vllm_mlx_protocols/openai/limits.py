"""What one request may ask for. Beyond these is a 400 that names the field."""

from __future__ import annotations

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
MAX_PROMPTS = 256
"""Prompts of one ``/v1/completions`` request."""
