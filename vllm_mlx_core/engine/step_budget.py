"""How much work a check or a repair may do: schemas come from clients, arguments from models, and both may be huge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

MAX_STEPS = 5_000
"""Most that one check or repair may do, in keywords of a schema that are looked at: some 50 ms."""
VALUES_PER_STEP = 8
"""So many values can be gone through in the time of a step."""
CHARACTERS_PER_STEP = 2_000
"""So many characters can be read in the time of a step."""

_steps: ContextVar[list[int]] = ContextVar("steps")


class OutOfSteps(Exception):
    """A check or a repair took more than ``MAX_STEPS``."""


@contextmanager
def bounded() -> Iterator[None]:
    """Let what is inside take ``MAX_STEPS`` together."""
    token = _steps.set([MAX_STEPS])
    try:
        yield
    finally:
        _steps.reset(token)


def spend(steps: int = 1) -> None:
    """Take steps of those that are left. Raises OutOfSteps, and LookupError outside ``bounded``."""
    left = _steps.get()
    left[0] -= steps
    if left[0] < 0:
        raise OutOfSteps


def count_values(value: Any) -> int:
    """Return how many values there are in a value, itself among them, or enough of them to be too many for any check.

    Pure.
    """
    waiting = [value]
    for each in waiting:  # which grows meanwhile
        if len(waiting) > (MAX_STEPS + 1) * VALUES_PER_STEP:
            break
        waiting += each if isinstance(each, list) else each.values() if isinstance(each, dict) else ()
    return len(waiting)
