"""Kernels that MLX compiles on a Linux CPU, with the machine's C++ compiler, when a function of ``mx.compile`` runs.

A machine without a compiler runs such functions as they are. One with a compiler that fails, or without room for what
it writes, does not: MLX raises in the middle of a forward pass. Metal compiles in memory and knows none of this.
"""

from __future__ import annotations

import logging

import mlx.core as mx

log = logging.getLogger(__name__)

_FAILURES = ("[Compile::eval_cpu]", "C++ shared library", "popen() failed", "filesystem error")
"""What MLX says when a kernel cannot be written, compiled or loaded."""


def can_compile() -> bool:
    """Return whether MLX compiles functions here. Evaluates nothing."""
    runs = 0

    def function(x: mx.array) -> mx.array:
        nonlocal runs
        runs += 1
        return x + 1

    compiled = mx.compile(function)
    for _ in range(3):  # the first call of a process may not count
        compiled(mx.zeros(1))
    return runs < 3


def is_failure(error: BaseException) -> bool:
    """Return whether ``error`` says that a kernel could not be made."""
    return isinstance(error, RuntimeError) and any(mark in str(error) for mark in _FAILURES)


def do_without(error: BaseException) -> bool:
    """Compile nothing any more, in the whole process, if ``error`` is such a failure; return whether it is.

    Then it is worth trying again. Says so once.
    """
    if not is_failure(error):
        return False
    mx.disable_compile()
    log.warning("MLX cannot compile kernels, so functions run uncompiled: %s", " ".join(str(error).split())[:300])
    return True
