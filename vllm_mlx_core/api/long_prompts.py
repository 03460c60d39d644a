"""Prompts that are far too long: refused before they are tokenised whole, which takes hundreds of bytes a token."""

from __future__ import annotations

from .errors import ContextLengthExceeded
from .parsing import Tokenizer

MOST_TOKENS = 2**18
"""Most tokens that a prompt is counted to if the model's context is smaller."""
MOST_CHARS = 8
"""Most characters for each of them. Texts have four or so; only blanks and the like have more."""


def encode_prompt(
    tokenizer: Tokenizer, text: str, *, context_length: int, add_special_tokens: bool = False
) -> list[int]:
    """Return the token ids of a prompt, or of a part of one. Any thread; does not mutate.

    One that is longer than the context is tokenised as well, so that whoever counts learns by how much. But beyond
    ``MOST_TOKENS`` and the context, ContextLengthExceeded is raised at the cost of that many tokens, however long the
    text.
    """
    most = max(MOST_TOKENS, context_length)
    sample = text[: 2 * most]
    if len(text) > MOST_CHARS * most or (len(sample) < len(text) and len(tokenizer.encode(sample)) > most):
        raise ContextLengthExceeded(
            f"This model's context is {context_length} tokens, and the prompt alone has more than {most}, "
            f"or more than {MOST_CHARS * most} characters."
        )
    return tokenizer.encode(text, add_special_tokens=add_special_tokens)
