"""API keys as an operator writes them: ``KEY`` or ``NAME:KEY``. No message of this module holds a key."""

from __future__ import annotations

import logging
import os
import re
import stat
from argparse import ArgumentTypeError
from collections.abc import Iterable
from pathlib import Path

from vllm_mlx_core.api import ApiKey, UsageError

log = logging.getLogger(__name__)

VARIABLE = "VLLM_MLX_API_KEY"
"""The environment variable that holds a key."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NUMBERED = re.compile(r"key-[0-9]+", re.IGNORECASE)


def api_key(text: str) -> ApiKey:
    """Return the key that ``text`` holds. Raises ArgumentTypeError.

    What stands before the first colon is a name if it can be one.
    """
    name, colon, key = text.partition(":")
    if not (colon and _NAME.fullmatch(name)):
        name, key = "", text
    if _NUMBERED.fullmatch(name):
        raise ArgumentTypeError("names such as key-1 are those of keys without a name")
    if not key or key != key.strip() or not key.isprintable() or not key.isascii():
        raise ArgumentTypeError("must be printable ASCII, not empty and without blanks around it")
    return ApiKey(key, name or None)


def read(file: Path) -> list[ApiKey]:
    """Return the keys of a file, one a line; blank lines and those that begin with ``#`` are none.

    Raises UsageError. Logs a warning if other users of this machine can read the file.
    """
    try:
        with file.open(encoding="utf-8") as source:
            mode = os.fstat(source.fileno()).st_mode
            lines = source.read().splitlines()
    except OSError as error:
        raise UsageError(f"--api-key-file: cannot read {file}: {error.strerror or error}.") from error
    except ValueError as error:
        raise UsageError(f"--api-key-file: {file} is not UTF-8 text.") from error
    if mode & stat.S_IROTH:
        log.warning("Every user of this machine can read the API keys in %s: chmod o-r protects them.", file)
    keys = []
    for number, line in enumerate(map(str.strip, lines), 1):
        if line and not line.startswith("#"):
            try:
                keys.append(api_key(line))
            except ArgumentTypeError as error:
                raise UsageError(f"--api-key-file: {file}, line {number}: {error}.") from None
    if not keys:
        raise UsageError(f"--api-key-file: {file} holds no key.")
    return keys


def distinct(keys: Iterable[ApiKey]) -> tuple[ApiKey, ...]:
    """Return each key once. Raises UsageError if one has two names: whose requests would they be?"""
    found: dict[str, ApiKey] = {}
    for key in keys:
        other = found.setdefault(key.key, key)
        if other.name != key.name:
            names = " and ".join(sorted(str(each.name or "no name") for each in (other, key)))
            raise UsageError(f"One API key is given twice, with {names}.")
    return tuple(found.values())


def from_environment() -> str | None:
    """Return the API key of the environment. Raises UsageError for an empty one, which must not open a server."""
    key = os.environ.get(VARIABLE)
    if key is None:
        return None
    if not key.strip():
        raise UsageError(f"{VARIABLE} is set but empty: give it a key, or unset it to go without one.")
    return key.strip()
