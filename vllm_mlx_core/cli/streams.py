"""Standard streams that no command needs to think about: always there, and never raising over a character."""

from __future__ import annotations

import io
import os
import sys


def prepare_streams() -> None:
    """Open what the caller closed, and let characters that a stream's encoding lacks be replaced. Mutates ``sys``."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def settle_output() -> None:
    """Write what standard output still holds, or else give it up: at its end the interpreter would complain again."""
    try:
        sys.stdout.flush()
    except OSError:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)
