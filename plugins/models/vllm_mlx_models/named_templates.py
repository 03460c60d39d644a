"""Checkpoints with several chat templates: one for conversations with tools, one for all others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from vllm_mlx_core.api import Checkpoint, ModelError


class TemplateSources(NamedTuple):
    """Sources of the templates to use without and with tools; both empty if the checkpoint has none."""

    plain: str
    with_tools: str


def template_sources(checkpoint: Checkpoint) -> TemplateSources:
    """Return a checkpoint's templates; most have one for both. Raises ModelError for one that cannot be read.

    A template for tools often cannot do without, or tells the model of tools that are not there.
    """
    named = _named(checkpoint.path)
    plain = named.get("default") or checkpoint.chat_template
    return TemplateSources(plain, named.get("tool_use") or plain)


def _named(folder: Path) -> dict[str, str]:
    """Return the templates by name, from the folder beside chat_template.jinja or from tokenizer_config.json."""
    main = folder / "chat_template.jinja"
    try:
        if main.is_file():
            files = sorted((folder / "additional_chat_templates").glob("*.jinja"))
            more = {file.stem: file.read_text(encoding="utf-8") for file in files}
            return more | {"default": main.read_text(encoding="utf-8")}
        config = folder / "tokenizer_config.json"
        content = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
        entries = content.get("chat_template") if isinstance(content, dict) else None
        if not isinstance(entries, list):
            return {}
        return {str(entry["name"]): str(entry["template"]) for entry in entries}
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"The chat templates in {folder} cannot be read: {error}") from error
