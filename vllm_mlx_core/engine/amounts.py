"""Amounts of memory as people read them."""

from __future__ import annotations

UNITS = ("B", "KB", "MB", "GB", "TB")


def format_bytes(count: int) -> str:
    """Return ``count`` in the largest decimal unit that leaves at least 1, to three digits."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {UNITS[unit]}"
