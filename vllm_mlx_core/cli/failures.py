"""What can go wrong on the machine while a model is loaded, in words for its owner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from vllm_mlx_core.api import ModelError

_ALLOCATION = re.compile(r"malloc|allocat|out of memory|insufficient memory", re.IGNORECASE)


@contextmanager
def explain_load_failures(reference: str | None) -> Iterator[None]:
    """Turn want of memory and files that cannot be read or written into a ModelError; let all else pass."""
    model = reference or "the demonstration model"
    try:
        yield
    except MemoryError as error:
        raise ModelError(_no_memory(model)) from error
    except OSError as error:
        raise ModelError(f"Cannot load {model}: {error}.") from error
    except RuntimeError as error:  # MLX has no type of its own for it
        if not _ALLOCATION.search(str(error)):
            raise
        raise ModelError(_no_memory(model)) from error


def _no_memory(model: str) -> str:
    return f"Not enough memory to load {model}: close other programs, or choose a smaller or more quantised model."
