"""A model that says what you tell it to: see over HTTP what the server makes of a raw model output.

    vllm-mlx serve scripted --plugin vllm_mlx_core.testing.scripted --tool-call-parser hermes

Through the real engine, scheduler and sampler it replies with exactly the text of the last user message, one character
a token, then its end token. Send ``<tool_call>{"name": "f", "arguments": {}}</tool_call>`` as the user, and the client
gets a tool call. Lines at the start of that message can ask for more, and are not part of the reply:

``#chunk=7``
    tokens are seven characters wide;
``#open-think``
    the rendered prompt ends with an opened ``<think>`` block;
``#echo-results``
    after tool results the reply is the text of the last of them; without this it is the user message's again, so an
    agent that was told to call a tool would call it for ever.

A raw prompt (completions) is the script as a whole. Tools are accepted and change nothing. An assistant message that is
to be continued is taken as the beginning of the reply. To give a server of your own the model, load this module as a
plugin; in tests of a family's consumers, ``ScriptedFamily`` can be used directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vllm_mlx_core.api import Checkpoint, Registrar, hookimpl

NAME = "scripted"


@hookimpl
def vllm_mlx_resolve_model(reference: str | None) -> Checkpoint | None:
    """Know the model ``scripted``, which has no files."""
    if reference != NAME:
        return None
    return Checkpoint(path=Path(__file__).with_name(NAME), name=NAME, overrides={"model_type": NAME})


@hookimpl
def vllm_mlx_register(registrar: Registrar) -> None:
    """Offer the family that serves it."""
    registrar.add("model_families", NAME, "vllm_mlx_core.testing.scripted_family:ScriptedFamily")


@hookimpl
def vllm_mlx_detect_family(checkpoint: Checkpoint, families: Sequence[str]) -> str | None:
    """Name the family of the scripted checkpoint."""
    return NAME if checkpoint.model_type == NAME and NAME in families else None
