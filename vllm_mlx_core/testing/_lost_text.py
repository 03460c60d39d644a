"""Whether a parser lost text: what it may drop is markers and white space."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ._cuts import any_of


def only_dropped(text: str, output: str, markers: Sequence[str]) -> bool:
    """Return whether ``output`` is ``text`` without some of its markers and white space. Pure."""
    droppable = re.compile(rf"{any_of(markers)}|\s+")
    rest = iter(text)
    if droppable.sub("", text) == droppable.sub("", output) and all(char in rest for char in output):
        return True  # all but markers and white space is there, and nothing came from elsewhere
    return _is_explained(text, output, markers)


def _is_explained(text: str, output: str, markers: Sequence[str]) -> bool:
    """Return the same exactly, for markers that overlap; takes longer."""
    # reached[i]: how much of the output can be explained by the first i characters of the text
    reached: dict[int, set[int]] = {0: {0}}
    for i in range(len(text)):
        explained = reached.pop(i, None)
        if explained is None:
            if not reached:
                return False
            continue
        further = {j + 1 for j in explained if output.startswith(text[i], j)}
        if text[i].isspace():
            further |= explained
        if further:
            reached.setdefault(i + 1, set()).update(further)
        for marker in markers:
            if text.startswith(marker, i):
                reached.setdefault(i + len(marker), set()).update(explained)
    return len(output) in reached.get(len(text), ())
