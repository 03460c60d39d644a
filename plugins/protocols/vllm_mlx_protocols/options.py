"""Types of command-line options that several front-ends have."""

from __future__ import annotations

import argparse
import math

DAY_S = 86_400.0
MB = 1024 * 1024


def file_name(text: str) -> str:
    """Return the name of a file, or raise what argparse reports."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError("a file name is needed")
    return text


def positive(text: str) -> float:
    """Return a number above 0, or raise what argparse reports."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value
