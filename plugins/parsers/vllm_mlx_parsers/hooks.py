"""Which of the built-in parsers fit a checkpoint.

The checkpoint's ``model_type`` decides if it is in the table, unless its chat template contradicts; otherwise the
markers in the template decide. An operator's flags override the answer, and other plugins are asked before.
"""

from __future__ import annotations

import re

from vllm_mlx_core.api import Checkpoint, ParserChoice, hookimpl

HERMES_MODEL_TYPES = frozenset(
    {"granitemoehybrid", "qwen2", "qwen2_5_vl", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe"}
)
THINK_MODEL_TYPES = frozenset({"qwen3", "qwen3_moe"})

OTHER_CALL_FORMATS = (
    "<function=",  # Qwen3-Coder and Qwen3.5, also inside <tool_call>
    "<arg_key>",  # GLM, also inside <tool_call>
    "<tool_sep>",  # Hunyuan
    "<invoke",  # MiniMax
    "<|tool_calls_section_begin|>",  # Kimi
    "<｜tool▁calls▁begin｜>",  # DeepSeek, also as distilled into Qwen2
    "<｜DSML｜",  # DeepSeek
    "<|python_tag|>",  # Llama
    "[TOOL_CALLS]",  # Mistral
    "<|channel|>",  # Harmony
)
"""Templates that hold one of these teach another format than Hermes, whatever else they mention."""

_JSON_CALL = re.compile(r"""\{\s*\\?["']name\\?["']\s*:""")


@hookimpl(trylast=True)
def vllm_mlx_choose_parsers(checkpoint: Checkpoint) -> ParserChoice | None:
    """Choose by model type, else by the chat template; None if neither says anything."""
    template = checkpoint.chat_template
    by_type = f"model_type {checkpoint.model_type}"
    reasons: list[str] = []
    mentioned: list[str] = []

    tool: str | None = None
    if not any(marker in template for marker in OTHER_CALL_FORMATS):
        if checkpoint.model_type in HERMES_MODEL_TYPES:
            tool = "hermes"
            reasons = [by_type]
        elif "<tool_call>" in template and _JSON_CALL.search(template):
            tool = "hermes"
            mentioned.append("<tool_call>")

    # A template that only cuts the reasoning out of earlier turns knows the closing tag alone.
    tag = next((tag for tag in ("<think>", "</think>") if tag in template), None)
    reasoning: str | None = None
    if checkpoint.model_type in THINK_MODEL_TYPES and (tag or not template):
        reasoning = "think"
        reasons = [by_type]
    elif tag:
        reasoning = "think"
        mentioned.append(tag)

    if tool is None and reasoning is None:
        return None
    if mentioned:
        reasons.append(f"chat template mentions {' and '.join(mentioned)}")
    return ParserChoice(tool=tool, reasoning=reasoning, reason=", ".join(reasons))
