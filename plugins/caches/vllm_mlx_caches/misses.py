"""Saying why a prompt found nothing."""

from __future__ import annotations

from vllm_mlx_core.api import TOKEN_BYTES, CacheMiss


def explain(prompt: bytes, nearest: bytes | None, shared: int, min_tokens: int) -> CacheMiss:
    """Explain the miss of a packed prompt, given the packed entry that shares most tokens with it, ``shared``. Pure.

    Fewer than ``min_tokens`` are not reused.
    """
    num_tokens = len(prompt) // TOKEN_BYTES
    if nearest is None:
        return CacheMiss(_reason(num_tokens, None, 0, min_tokens), num_tokens)
    own = len(nearest) // TOKEN_BYTES
    return CacheMiss(
        _reason(num_tokens, own, shared, min_tokens),
        num_tokens,
        position=shared,
        prompt_token=token_at(prompt, shared),
        cached_token=token_at(nearest, shared),
        nearest_tokens=own,
    )


def token_at(packed: bytes, position: int) -> int | None:
    """Return a token of a packed sequence, or None behind its end. Pure."""
    one = packed[position * TOKEN_BYTES : (position + 1) * TOKEN_BYTES]
    return memoryview(one).cast("I")[0] if one else None


def _reason(num_tokens: int, nearest: int | None, shared: int, min_tokens: int) -> str:
    if num_tokens < 2:
        return f"a prompt of {num_tokens} tokens has no proper prefix"
    if nearest is None:
        return "nothing is stored under this salt"
    if shared == 0:
        return (
            f"no entry begins like the prompt: the first difference to the nearest, of {nearest} tokens, is at token 0"
        )
    if shared < min_tokens:
        return f"the nearest entry shares {shared} of its {nearest} tokens, and fewer than {min_tokens} are not reused"
    where = f"the first difference is at token {shared}" if shared < num_tokens else "the prompt does not go beyond it"
    return f"the nearest entry, of {nearest} tokens, has a state that cannot go back, and {where}"
