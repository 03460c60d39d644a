"""Where responses are kept, and how many."""

from __future__ import annotations

from vllm_mlx_core.api import Settings
from vllm_mlx_protocols.storage import Storage

from .store import Store

STORAGE = Storage(
    "responses",
    what="stored responses",
    max_mb=512.0,
    age_help="forget responses that were not used for so long",
    size_help="forget the least recently used responses beyond this size",
)
add_options = STORAGE.add_options


def check_options(settings: Settings) -> None:
    """Raise UsageError if the file that the operator named cannot be used."""
    if STORAGE.is_named(settings):
        open_store(settings).close()


def open_store(settings: Settings) -> Store:
    """Return the store that the operator asked for. Raises UsageError if the file that they named cannot be used."""
    max_age_s, max_bytes = STORAGE.max_age_s(settings), STORAGE.max_bytes(settings)
    return STORAGE.open(settings, lambda path: Store(path, max_age_s=max_age_s, max_bytes=max_bytes))
