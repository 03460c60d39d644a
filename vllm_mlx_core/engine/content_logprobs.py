"""Keeping token log-probabilities in step with the visible answer."""

from __future__ import annotations

from collections.abc import Collection

from vllm_mlx_core.api import TokenLogprobs


class ContentLogprobs:
    """Holds each token's entry until it is known whether its text is shown.

    Parsers hold text back, and drop markers, white space and calls, but keep the order: what they emit is looked for in
    the text that they were given and that is still unaccounted for. In front of it nothing may stand but what they
    drop, ``markers`` among it; if there is no such place, the last place where it stands is taken. An entry is
    delivered with the first of its text that is shown, and dropped if none is.
    """

    def __init__(self, markers: Collection[str] = ()) -> None:
        self._markers = tuple(filter(None, markers))
        self._pieces: list[str] = []  # the text that is unaccounted for
        self._spans: list[tuple[int, list[TokenLogprobs]]] = []  # length of the text, and the entries it came from
        self._textless: list[TokenLogprobs] = []  # the beginning of a character
        self._ready: list[TokenLogprobs] = []
        self._called = 0  # how much of the text may belong to a call that has ended

    def add(self, entry: TokenLogprobs, text: str) -> None:
        """Take a token's entry and the text that became certain with it. Mutates."""
        self._textless.append(entry)
        if text:
            self._pieces.append(text)
            self._spans.append((len(text), self._textless))
            self._textless = []

    def show(self, text: str) -> None:
        """Note that ``text`` was shown: deliver its entries. Mutates."""
        if self._place(text) is None:  # parsers may put white space in front that stood before a call, or nowhere
            solid = text.lstrip()
            space = text[: len(text) - len(solid)]
            if space and solid and (start := self._place(space, first=True)) is not None:
                self._deliver(start, start + len(space))
            text = solid or text
        self._deliver(*self._find(text))

    def hide(self, text: str) -> None:
        """Note that ``text`` is reasoning: drop the entries that belong to it alone. Mutates."""
        self._forget(self._find(text)[1])

    def end_call(self, newest: int) -> None:
        """Note that a call ends within the ``newest`` characters: what came before, but white space, was the call's."""
        held = self._held()
        space = len(held) - len(held.lstrip())
        self._forget(max(space, len(held) - newest), keep=space)
        self._called = len(self._held())

    def take(self) -> list[TokenLogprobs]:
        """Return the entries to deliver now, and forget them. Mutates."""
        ready, self._ready = self._ready, []
        return ready

    def _find(self, text: str) -> tuple[int, int]:
        """Return where ``text`` stands in what is unaccounted for; all of that if it cannot be told."""
        start = self._place(text)
        if start is None:
            held = self._held()
            start = held.rfind(text)
            if start < 0:
                return 0, len(held)
        return start, start + len(text)

    def _place(self, text: str, *, first: bool = False) -> int | None:
        """Return where ``text`` stands behind nothing but what is dropped, or None.

        Where a marker stands it is the marker, not its beginning, that was passed on or dropped. Of several places
        the first is taken, unless calls have ended: then it is the last, if not told otherwise.
        """
        held = self._held()
        found: int | None = None
        reached = set(range(self._called + 1))  # places behind nothing but a call, markers and white space
        place = 0
        while reached:
            if place in reached:
                reached.remove(place)
                markers = [len(each) for each in self._markers if held.startswith(each, place)]
                if held.startswith(text, place) and len(text) >= max(markers, default=0):
                    found = place
                    if first or not self._called:
                        break
                reached.update(place + length for length in markers)
                if held[place : place + 1].isspace():
                    reached.add(place + 1)
            place += 1
        return found

    def _held(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def _deliver(self, start: int, end: int) -> None:
        """Deliver the entries of the text between two places, and forget all text before its end. Mutates."""
        position = 0
        for length, entries in self._spans:
            if position < end and position + length > start:
                self._ready += entries
                entries.clear()
            position += length
        self._forget(end)

    def _forget(self, end: int, keep: int = 0) -> None:
        """Drop the text before ``end``, and the entries that belong to it alone, but its first ``keep`` characters."""
        held = self._held()
        self._pieces = [held[:keep] + held[end:]]
        self._called = max(0, self._called - end)
        position = 0
        spans: list[tuple[int, list[TokenLogprobs]]] = []
        for length, entries in self._spans:
            first, position = position, position + length
            left = max(0, min(position, keep) - first) + max(0, position - max(first, end))
            if left:
                spans.append((left, entries))
        self._spans = spans


class AllLogprobs(ContentLogprobs):
    """Delivers every entry at once, whatever becomes of its text: for whoever counts tokens."""

    def add(self, entry: TokenLogprobs, text: str) -> None:
        """Take a token's entry. Mutates."""
        self._ready.append(entry)

    def show(self, text: str) -> None:
        """Do nothing."""

    def hide(self, text: str) -> None:
        """Do nothing."""

    def end_call(self, newest: int) -> None:
        """Do nothing."""
