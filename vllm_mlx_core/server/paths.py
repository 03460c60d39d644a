"""Which paths are a front-end's."""

from __future__ import annotations


def is_under(path: str, prefix: str) -> bool:
    """Return whether ``path`` is ``prefix`` or below it. Below ``/``, which is the address itself, there is nothing."""
    prefix = prefix.rstrip("/")
    return path == (prefix or "/") or (bool(prefix) and path.startswith(f"{prefix}/"))
