"""Log-probabilities as front-ends see them: with the texts of the tokens. Event-loop thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vllm_mlx_core.api import PromptToken, TokenLogprob, TokenLogprobs

from .detokenizer import Detokenizer, token_text

if TYPE_CHECKING:
    from vllm_mlx_core.api import Tokenizer

    from .messages import Logprobs


def token_logprobs(tokenizer: Tokenizer, token: int, text: bytes, logprobs: Logprobs) -> TokenLogprobs:
    """Return the entry of a generated token that says ``text``. Pure."""
    return TokenLogprobs(TokenLogprob(token, text, logprobs.chosen), _top(tokenizer, logprobs))


def prompt_tokens(tokenizer: Tokenizer, prompt: Sequence[int], logprobs: Sequence[Logprobs]) -> list[PromptToken]:
    """Return the tokens of a prompt; ``logprobs`` are those of all but the first. Pure.

    Joined, their texts are what the tokenizer makes of the prompt, special tokens included.
    """
    detokenizer = Detokenizer(tokenizer, None)
    texts = [detokenizer.push_with_bytes(token)[1] for token in prompt]
    texts[-1] += detokenizer.finish().encode()
    first, *others = zip(prompt, texts, strict=True)
    return [
        PromptToken(*first),
        *(
            PromptToken(token, text, each.chosen, _top(tokenizer, each))
            for (token, text), each in zip(others, logprobs, strict=True)
        ),
    ]


def _top(tokenizer: Tokenizer, logprobs: Logprobs) -> list[TokenLogprob]:
    return [
        TokenLogprob(top, token_text(tokenizer, top), value)
        for top, value in zip(logprobs.top_ids, logprobs.top_logprobs, strict=True)
    ]
