"""Hook implementations: find the checkpoint an operator asked for, and the family that loads it.

Light to import. Hub access, GGUF reading and model code are imported when a reference needs them.
"""

from __future__ import annotations

from collections.abc import Sequence

from vllm_mlx_core.api import Checkpoint, LoadOptions, ModelNotFound, hookimpl

from . import architectures, local

DEMO_MODEL = "smollm2-135m-instruct"
"""The demonstration model's name; it is also served when no model is named."""


@hookimpl(trylast=True)
def vllm_mlx_resolve_model(reference: str | None, options: LoadOptions) -> Checkpoint:
    """Resolve, in this order: the demonstration model, something on disk, a hub id."""
    if reference is None or reference == DEMO_MODEL:
        from .embedded import demo_checkpoint

        return demo_checkpoint(DEMO_MODEL, options)
    path = local.find(reference)
    if path is not None:
        if local.is_gguf(path):
            from .gguf import gguf_checkpoint

            return gguf_checkpoint(path, reference)
        return local.directory_checkpoint(path, reference)
    if local.looks_like_path(reference):
        raise ModelNotFound(local.not_found_message(reference))
    if not local.is_hub_id(reference):
        raise ModelNotFound(
            f"No model is called {reference!r}: it is no file or folder here and no hub id (org/name)."
            f"{local.did_you_mean(reference)} The demonstration model is called {DEMO_MODEL}."
        )
    from .hub import hub_checkpoint

    return hub_checkpoint(reference, options)


@hookimpl(trylast=True)
def vllm_mlx_detect_family(checkpoint: Checkpoint, families: Sequence[str]) -> str | None:
    """Name the family: the one registered for the model_type, else ``gguf`` or ``text`` where they can load it."""
    if local.is_gguf(checkpoint.path) or local.is_converted_gguf(checkpoint.path):
        return _offered("gguf", families)
    model_type = checkpoint.model_type
    if model_type and model_type in families:
        return model_type
    if architectures.is_known(checkpoint.config) or "model_file" in checkpoint.config:
        return _offered("text", families)
    return None


def _offered(name: str, families: Sequence[str]) -> str | None:
    return name if name in families else None
