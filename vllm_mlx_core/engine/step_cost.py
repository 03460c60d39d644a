"""What a decode step costs, in bytes that it reads, which is what bounds it on devices with unified memory. Pure."""

from __future__ import annotations

MIN_FORWARD_BYTES = 256 * 2**20
"""A forward pass costs no less than reading so much, however small the model is: it must be built and launched."""


def forward_bytes(weights: int) -> int:
    """Return what one forward pass costs beside the states that it reads.

    ``weights`` are counted in full, though of a mixture of experts a step reads less.
    """
    return max(weights, MIN_FORWARD_BYTES)


def step_bytes(weights: int, rows: int, longest: int, token_bytes: int) -> int:
    """Return what a step of ``rows`` costs that keep ``token_bytes`` for each token, padded to the longest of them."""
    return forward_bytes(weights) + rows * longest * token_bytes
