"""What a model that reads text only is told of what it cannot see."""

from __future__ import annotations


def left_out(kind: str) -> str:
    """Return what stands for an image or the like in a tool's result.

    A user who shows a picture has to be told that it is not seen, but an agent whose tool returns one should go on.
    """
    return f"[{kind[:64]} left out: this model reads text only]"
