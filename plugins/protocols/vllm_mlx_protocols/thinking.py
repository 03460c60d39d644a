"""How a request tells the model's template whether to think."""

from __future__ import annotations

SWITCHES = ("enable_thinking", "thinking", "reasoning")
"""The names under which templates look it up; a template knows one of them."""


def switch(on: bool) -> dict[str, bool]:
    """Return the template variables that turn thinking on or off."""
    return dict.fromkeys(SWITCHES, on)
