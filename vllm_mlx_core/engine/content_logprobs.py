"""Keeping token log-probabilities in step with the visible answer."""

from __future__ import annotations

from vllm_mlx_core.api import TokenLogprobs


class ContentLogprobs:
    """Holds each token's entry until it is known whether its text is shown.

    Parsers hold text back, and drop markers and white space, but keep the order: what they emit is looked for in the
    text that they were given and that is still unaccounted for. An entry is delivered with the first of its text that
    is shown, and dropped if none is.
    """

    def __init__(self) -> None:
        self._text = ""
        self._spans: list[tuple[int, list[TokenLogprobs]]] = []  # length of the text, and the entries it came from
        self._textless: list[TokenLogprobs] = []  # the beginning of a character
        self._ready: list[TokenLogprobs] = []
        self._after_call = False

    def add(self, entry: TokenLogprobs, text: str) -> None:
        """Take a token's entry and the text that became certain with it. Mutates."""
        self._after_call = False
        self._textless.append(entry)
        if text:
            self._text += text
            self._spans.append((len(text), self._textless))
            self._textless = []

    def show(self, text: str) -> None:
        """Note that ``text`` was shown: deliver its entries. Mutates."""
        start = self._text.rfind(text) if self._after_call else self._text.find(text)
        start, end = (start, start + len(text)) if start >= 0 else (0, len(self._text))
        position = 0
        rest: list[tuple[int, list[TokenLogprobs]]] = []
        for length, entries in self._spans:
            first, position = position, position + length
            if position > start and first < end:
                self._ready += entries
                entries = []
            if position > end:
                rest.append((position - max(first, end), entries))
        self._text, self._spans = self._text[end:], rest

    def hide(self, text: str) -> None:
        """Note that ``text`` is reasoning: drop the entries that belong to it alone. Mutates."""
        start = self._text.find(text)
        end = start + len(text) if start >= 0 else len(self._text)
        position = 0
        rest: list[tuple[int, list[TokenLogprobs]]] = []
        for length, entries in self._spans:
            first, position = position, position + length
            if position > end:
                rest.append((position - max(first, end), entries))
        self._text, self._spans = self._text[end:], rest

    def call(self) -> None:
        """Note that a piece of a tool call was read: text shown by the same token stands at its end. Mutates."""
        self._after_call = True

    def take(self) -> list[TokenLogprobs]:
        """Return the entries to deliver now, and forget them. Mutates."""
        if self._after_call:  # whatever was not shown belongs to the call
            self._text, self._spans, self._after_call = "", [], False
        ready, self._ready = self._ready, []
        return ready
