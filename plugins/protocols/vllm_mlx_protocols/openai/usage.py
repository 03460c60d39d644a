"""Token counts of a request, as OpenAI reports them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from vllm_mlx_core.api import Usage


class PromptTokensDetails(msgspec.Struct):
    """How much of the prompt was not computed."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct):
    """How much of the output is thinking."""

    reasoning_tokens: int


class UsageReport(msgspec.Struct):
    """The ``usage`` object."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


def report(prompt_tokens: int, usages: Iterable[Usage], *, n: int = 1) -> UsageReport:
    """Return the sum over a request's completions, ``n`` of each prompt in a row.

    A prompt counts once, however many completions it has, and so does the part of it that came from the cache.
    """
    all_usages = list(usages)
    completion_tokens = sum(usage.completion_tokens for usage in all_usages)
    groups = [all_usages[start : start + n] for start in range(0, len(all_usages), n)]
    return UsageReport(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        prompt_tokens_details=PromptTokensDetails(sum(max(u.cached_tokens for u in group) for group in groups)),
        completion_tokens_details=CompletionTokensDetails(sum(u.reasoning_tokens for u in all_usages)),
    )
