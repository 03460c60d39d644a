"""Keeping the process's limit of open files while mlx-lm is imported.

Its import sets the limit to 2048 (4096 at most) for the whole process: a server may need more connections than that,
and a process without privileges could never raise it again, or fails at once if its limit is lower.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def file_limit_kept() -> Iterator[None]:
    """Ignore whatever the body does to RLIMIT_NOFILE. Not reentrant."""
    setrlimit = resource.setrlimit

    def set_others(which: int, limits: tuple[int, int]) -> None:
        if which != resource.RLIMIT_NOFILE:
            setrlimit(which, limits)

    resource.setrlimit = set_others
    try:
        yield
    finally:
        resource.setrlimit = setrlimit
