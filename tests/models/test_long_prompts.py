from __future__ import annotations

import pytest

from vllm_mlx_core.api import ContextLengthExceeded, encode_prompt
from vllm_mlx_core.api.long_prompts import MOST_TOKENS


class Tokenizer:
    """Reads so many characters as one token, and notes the longest text that it was given."""

    def __init__(self, width):
        self.width = width
        self.longest = 0

    def encode(self, text, *, add_special_tokens=False):
        self.longest = max(self.longest, len(text))
        return [0] * (-(-len(text) // self.width) + add_special_tokens)


@pytest.mark.parametrize("width", [1, 4, 100])
def test_what_is_far_too_long_is_refused_before_it_is_tokenised_whole(width):
    tokenizer = Tokenizer(width)
    with pytest.raises(ContextLengthExceeded, match="context is 100 tokens, and the prompt alone has more than 262144"):
        encode_prompt(tokenizer, "x" * 64_000_000, context_length=100)  # type: ignore[arg-type]
    assert tokenizer.longest <= 2 * MOST_TOKENS


@pytest.mark.parametrize(
    ("length", "width", "context"), [(0, 1, 10), (1000, 1, 10), (2_000_000, 100, 10), (3_000_000, 1, 4_000_000)]
)
def test_what_can_be_counted_is_counted(length, width, context):
    tokenizer = Tokenizer(width)
    ids = encode_prompt(tokenizer, "x" * length, context_length=context, add_special_tokens=True)  # type: ignore[arg-type]
    assert len(ids) == -(-length // width) + 1
