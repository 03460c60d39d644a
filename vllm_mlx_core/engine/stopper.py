"""Finding stop strings in a text that arrives in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Node:
    """A prefix of some stop string. ``fallback`` is its longest proper suffix that is such a prefix too."""

    depth: int
    next: dict[str, _Node] = field(default_factory=dict)
    fallback: _Node | None = None
    match: str | None = None
    """The longest stop string that ends here."""


class StopStrings:
    """Watches one text for the stop string that is complete first; of several that end together, the longest.

    Aho and Corasick's automaton: linear in the text wherever it is cut, and no more is held back than the longest end
    of the text that a stop string begins with. Empty stop strings match nothing.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._root = self._node = _build(stops)
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """Take more text; return what is certainly before any stop string, and the stop string if one is complete.

        Mutates. After a match nothing more may be pushed.
        """
        root, node = self._root, self._node
        for position, character in enumerate(text):
            following = node.next.get(character)
            while following is None and node.fallback is not None:
                node = node.fallback
                following = node.next.get(character)
            node = following or root
            if node.match is not None:
                self._node = root
                seen = self._held + text[: position + 1]
                self._held = ""
                return seen[: len(seen) - len(node.match)], node.match
        self._node = node
        seen = self._held + text
        certain = len(seen) - node.depth
        self._held = seen[certain:]
        return seen[:certain], None

    def finish(self) -> str:
        """Return the text that was held back. Mutates."""
        held, self._held, self._node = self._held, "", self._root
        return held


def _build(stops: Sequence[str]) -> _Node:
    root = _Node(0)
    for stop in filter(None, stops):
        node = root
        for character in stop:
            node = node.next.setdefault(character, _Node(node.depth + 1))
        node.match = stop
    queue = deque(root.next.values())
    for node in queue:
        node.fallback = root
    while queue:
        parent = queue.popleft()
        for character, node in parent.next.items():
            fallback = parent.fallback
            while fallback is not None and character not in fallback.next:
                fallback = fallback.fallback
            node.fallback = root if fallback is None else fallback.next[character]
            node.match = node.match or node.fallback.match
            queue.append(node)
    return root
