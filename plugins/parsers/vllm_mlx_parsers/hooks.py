"""What the built-in parsers answer to the core's hooks."""

from __future__ import annotations

from vllm_mlx_core.api import Checkpoint, ParserChoice, hookimpl


@hookimpl(trylast=True)
def vllm_mlx_choose_parsers(checkpoint: Checkpoint) -> ParserChoice | None:
    """Choose by chat template and model type, see ``choice``; None if neither says anything."""
    from .choice import choose  # its table of patterns is needed once a model is loaded, not at every start

    return choose(checkpoint.config, checkpoint.chat_template)
