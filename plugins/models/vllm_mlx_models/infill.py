"""Filling a gap in a text, in the form that a model was trained on (fill-in-the-middle).

The models tell it by their vocabulary: each form has three special tokens of its own. Published by the models' authors:
Qwen2.5-Coder and CodeGemma, StarCoder and Granite, SantaCoder, DeepSeek-Coder, GLM-4, Codestral.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_mlx_core.api import Infill, Tokenizer, encode_prompt


class _Form(NamedTuple):
    """Three markers, in the order in which a prompt holds them; ``suffix_first`` says what stands between."""

    first: str
    second: str
    last: str = ""
    suffix_first: bool = False


_FORMS = (
    _Form("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    _Form("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    _Form("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    _Form("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    _Form("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    _Form("[SUFFIX]", "[PREFIX]", suffix_first=True),
)


def infill_tokens(tokenizer: Tokenizer, gap: Infill, *, context_length: int) -> list[int] | None:
    """Return the prompt that asks a model to fill ``gap``, or None if its vocabulary has no form for it.

    Raises ContextLengthExceeded if it is far too long.
    """
    for form in _FORMS:
        ids = [tokenizer.token_id(marker) for marker in form[:3] if marker]
        markers = [each for each in ids if each is not None]
        if len(markers) < len(ids):
            continue
        parts = [gap.suffix, gap.prefix] if form.suffix_first else [gap.prefix, gap.suffix]
        first, second = (encode_prompt(tokenizer, part, context_length=context_length) for part in parts)
        prompt = [*tokenizer.encode("", add_special_tokens=True), markers[0], *first]
        return [*prompt, markers[1], *second, *markers[2:]]
    return None
