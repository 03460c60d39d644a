"""What the built-in parsers answer to the core's hooks."""

from __future__ import annotations

from vllm_mlx_core.api import Checkpoint, ParserChoice, hookimpl


@hookimpl(trylast=True)
def vllm_mlx_choose_parsers(checkpoint: Checkpoint) -> ParserChoice | None:
    """Choose by chat template and model type, see ``choice``; None if neither says anything."""
    from .choice import choose  # its table of patterns is needed once a model is loaded, not at every start

    return choose(checkpoint.config, _templates(checkpoint))


def _templates(checkpoint: Checkpoint) -> str:
    """Return the source of the chat template, and of the one for tools if that is a file of its own."""
    for_tools = checkpoint.path / "additional_chat_templates" / "tool_use.jinja"
    if checkpoint.template is not None or not for_tools.is_file():
        return checkpoint.chat_template
    return checkpoint.chat_template + for_tools.read_text(encoding="utf-8", errors="replace")
