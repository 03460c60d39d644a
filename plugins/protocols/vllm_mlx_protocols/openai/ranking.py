"""The best of several completions of one prompt."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_mlx_core.api import Completion


def best(completions: Sequence[Completion], *, generated: int, wanted: int) -> list[Completion]:
    """Return of every ``generated`` completions in a row the ``wanted`` most likely ones, the best first.

    What counts is the mean log-probability of a completion's tokens, so that length does not. Needs log-probabilities.
    """
    if generated == wanted:
        return list(completions)
    groups = [completions[start : start + generated] for start in range(0, len(completions), generated)]
    return [each for group in groups for each in sorted(group, key=_likelihood, reverse=True)[:wanted]]


def _likelihood(completion: Completion) -> float:
    """Return the mean; the lowest there is if no token came or one has none (not a number cannot be sorted)."""
    tokens = completion.logprobs
    mean = sum(token.chosen.logprob for token in tokens) / len(tokens) if tokens else float("-inf")
    return mean if mean == mean else float("-inf")
