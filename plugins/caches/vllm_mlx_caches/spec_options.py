"""Reading the options after ``--cache NAME:``."""

from __future__ import annotations

import math
from collections.abc import Collection

from vllm_mlx_core.api import CacheSpec, UsageError


def reject_unknown(policy: str, spec: CacheSpec, known: Collection[str]) -> None:
    """Raise UsageError if ``spec`` has an option that is not ``known``."""
    for option in spec.options:
        if option not in known:
            knows = f"It knows: {', '.join(sorted(known))}." if known else "It takes no options."
            raise UsageError(f"The cache policy {policy!r} has no option {option!r}. {knows}")


def positive_int(policy: str, spec: CacheSpec, option: str, default: int) -> int:
    """Return an option's value. Raises UsageError if it is not a whole number of at least 1."""
    text = spec.options.get(option)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError(f"{option!r} of the cache policy {policy!r} must be a whole number from 1, not {text!r}.")
    return int(text)


def positive_number(policy: str, spec: CacheSpec, option: str, default: float, *, most: float) -> float:
    """Return an option's value. Raises UsageError if it is not a number above 0 and at most ``most``."""
    text = spec.options.get(option)
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= most:
        wanted = f"must be a number above 0 and at most {most:g}"
        raise UsageError(f"{option!r} of the cache policy {policy!r} {wanted}, not {text!r}.")
    return value
