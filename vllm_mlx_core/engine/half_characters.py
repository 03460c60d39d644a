"""Half characters in a call's arguments: escapes such as ``\\ud800`` without their other half.

Models write them, most JSON parsers take them, and strict ones refuse the whole answer that holds one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from vllm_mlx_core.api import Event, ToolCallArguments

_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^u]", re.DOTALL)
_HALF = re.compile(r"\\u[dD][89a-fA-F].{2}")
_HIGH = re.compile(r"\\u[dD][89abAB]")
_BEGUN = re.compile(r"(?:\\(?:u[0-9a-fA-F]{0,3})?)?")
_LOW_BEGUN = re.compile(r"(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?")


class HalfCharacters:
    """Replaces the halves in arguments that come in pieces by U+FFFD, also where a piece ends within an escape."""

    def __init__(self) -> None:
        self._held = ""
        self._index = 0

    def feed(self, event: Event) -> Iterable[Event]:
        """Take the next event of an answer and return what goes on to the client now. Mutates."""
        if not isinstance(event, ToolCallArguments):
            return (*self.finish(), event) if self._held else (event,)
        if not self._held and "\\" not in event.json:
            return (event,)
        self._index = event.index
        text = self._held + event.json
        cut = _safe_end(text)
        self._held = text[cut:]
        return (ToolCallArguments(event.index, _whole(text[:cut])),) if cut else ()

    def finish(self) -> Iterable[Event]:
        """Return what is held of arguments that have ended."""
        held, self._held = self._held, ""
        return (ToolCallArguments(self._index, _whole(held)),) if held else ()


def _whole(json: str) -> str:
    return _ESCAPE.sub(lambda found: r"\ufffd" if _HALF.fullmatch(found[0]) else found[0], json)


def _safe_end(json: str) -> int:
    """Return up to where nothing that follows can change what an escape means."""
    escapes = list(_ESCAPE.finditer(json))
    last = escapes[-1] if escapes else None
    end = last.end() if last is not None else 0
    if last is not None and len(last[0]) == 6 and _HIGH.match(last[0]) and _LOW_BEGUN.fullmatch(json, end):
        return last.start()
    begun = json.find("\\", end)
    return begun if begun >= 0 and _BEGUN.fullmatch(json, begun) else len(json)
