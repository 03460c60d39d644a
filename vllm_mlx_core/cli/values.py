"""Converters for command-line values: argparse names the option, these say in one line what is wrong with its value.

Each raises ``argparse.ArgumentTypeError`` and nothing else.
"""

from __future__ import annotations

import json
import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CACHE = re.compile(r"[^\s:,=]+(?::[^\s:,=]+=[^,]*(?:,[^\s:,=]+=[^,]*)*)?")


def integer(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Return a converter for whole numbers from ``minimum`` to ``maximum``, both included."""
    wanted = _wanted("a whole number", minimum, maximum)

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not {wanted}") from None
        if value < minimum or (maximum is not None and value > maximum):
            raise ArgumentTypeError(f"{text!r} is not {wanted}")
        return value

    return convert


def number(minimum: float, maximum: float | None = None, *, above: bool = False) -> Callable[[str], float]:
    """Return a converter for finite numbers in a range; ``above`` leaves the minimum itself out."""
    wanted = _wanted("a number", minimum, maximum, above=above)

    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not {wanted}") from None
        too_small = value <= minimum if above else value < minimum
        if not math.isfinite(value) or too_small or (maximum is not None and value > maximum):
            raise ArgumentTypeError(f"{text!r} is not {wanted}")
        return value

    return convert


def weight(text: str) -> tuple[str, float]:
    """Return the name and the number above 0 of ``NAME=WEIGHT``."""
    who, equals, much = text.rpartition("=")
    if not equals:
        raise ArgumentTypeError(f"{text!r} is not NAME=WEIGHT")
    return name(who), number(0, above=True)(much)


def name(text: str) -> str:
    """Return ``text``, which must not be blank or have blanks around it."""
    if not text or text != text.strip():
        raise ArgumentTypeError("must not be empty or have blanks around it")
    return text


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object that ``text`` holds."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentTypeError(f"not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ArgumentTypeError(f"must be a JSON object such as '{{\"enable_thinking\": false}}', not {text!r}")
    return value


def text_file(text: str) -> str:
    """Return the contents of the UTF-8 file at the path ``text``."""
    try:
        return Path(text).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ArgumentTypeError(f"cannot read {text!r}: {error.strerror or error}") from None
    except (ValueError, RuntimeError) as error:  # not UTF-8, a NUL in the path, or no such user after ~
        raise ArgumentTypeError(f"cannot read {text!r}: {error}") from None


def cache(text: str) -> str:
    """Return ``text``, which must look like ``NAME`` or ``NAME:key=value,key=value``."""
    if not _CACHE.fullmatch(text):
        raise ArgumentTypeError(f"{text!r} is not NAME or NAME:key=value,key=value")
    return text


def url(text: str) -> str:
    """Return an http or https address without a trailing slash."""
    if not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", text):
        raise ArgumentTypeError(f"{text!r} is not an address such as http://127.0.0.1:8000")
    return text.rstrip("/")


def host_name(text: str) -> str:
    """Return the name of a host, or an address, IPv6 in brackets, as it stands in a Host header; no port."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", text):
        raise ArgumentTypeError(f"{text!r} is not a host name such as models.example.org, without a port")
    return text.lower()


def origin(text: str) -> str:
    """Return the origin of a web page as browsers write it, or ``*``."""
    if text != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/?#@*]+", text.lower()):
        raise ArgumentTypeError(f"{text!r} is not * or an origin such as http://localhost:3000, without a path")
    return text.lower()


def _wanted(kind: str, minimum: float, maximum: float | None, *, above: bool = False) -> str:
    if maximum is None:
        return f"{kind} {'above' if above else 'of at least'} {minimum}"
    if above:
        return f"{kind} above {minimum} and at most {maximum}"
    return f"{kind} from {minimum} to {maximum}"
