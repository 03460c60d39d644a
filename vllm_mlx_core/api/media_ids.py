"""Telling prompts apart whose token ids are the same: an image is so many placeholders, whatever it shows."""

from __future__ import annotations

import hashlib
from array import array

FIRST_MEDIA_ID = 2**31
"""Numbers from here on, below 2**32, stand for media where prompts are compared. No token has such an id."""


def media_ids(content: bytes, num_tokens: int) -> list[int]:
    """Return what to put for the ``num_tokens`` placeholders of a medium in ``RenderedPrompt.cache_ids``. Pure.

    ``content`` is all that its embeddings depend on (its bytes, or a hash of them and of how it is prepared). Two media
    have the same numbers with a probability of 2**-31 for each placeholder.
    """
    digest = hashlib.shake_256(content).digest(4 * num_tokens)
    return [FIRST_MEDIA_ID | number for number in array("I", digest)]
