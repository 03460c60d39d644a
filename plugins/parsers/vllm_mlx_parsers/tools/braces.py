"""Calls as the Gemma family writes them: ``call:NAME{key:value,…}``, with a marker where JSON has a quote."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from vllm_mlx_parsers.grammar import Malformed, Reading, Unfinished
from vllm_mlx_parsers.json_scan import JSONScanner, decode_string
from vllm_mlx_parsers.scan import Markers, skip_space
from vllm_mlx_parsers.schema import Schema, json_text

from .call_parser import CallParser

_NAME = re.compile(r"[^\s{}<>\[\]():,\"']+")
_KEY = re.compile(r"[^:,{}\[\]]+")
_WORD = re.compile(r"[^,}\]]+")
_CLOSERS = {"{": "}", "[": "]"}

_State: TypeAlias = "Callable[[Any, str, int], int]"


class BraceCallParser(CallParser):
    """Reads ``START call:NAME{key:value,…} END``, repeated; subclass it and set ``start``, ``end`` and ``quote``.

    Strings stand between two ``quote`` markers, with nothing escaped, and are streamed. Numbers, ``true``, ``false``
    and ``null`` have their types, unless the schema asks for a string. Any other bare word is what the schema makes of
    it, else a string. A call is complete when its brace closes: the closing marker may be missing.
    """

    start: ClassVar[str]
    end: ClassVar[str]
    quote: ClassVar[str]

    _start: ClassVar[Markers]
    _quotes: ClassVar[Markers]
    _plain_string: ClassVar[Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        cls.starts, cls.ends = (cls.start,), (cls.end,)
        cls.special_tokens = (cls.start, cls.end, cls.quote)
        cls._start = Markers(cls.start)
        cls._quotes = Markers(cls.quote)
        cls._plain_string = re.compile(f'[^{re.escape(cls.quote[0])}"\\\\\x00-\x1f]+').fullmatch
        super().__init_subclass__(**kwargs)

    def calls(self, marker: str) -> Reading[None]:
        """Read one call, and the closing marker."""
        yield from self.openings(self._start)
        yield from self.expect("call:")
        yield from self.spaces()
        name = yield from self.run(_NAME)
        yield from self.spaces()
        if (brace := (yield from self.peek())) != "{":
            raise Malformed if brace else Unfinished
        self.start_call(name)
        schema = next((Schema(tool.parameters) for tool in self.context.tools if tool.name == name), Schema({}))
        yield from self.scan_arguments(BraceScanner(self._quotes, schema), self._plain_string)
        self.end_call()
        space = yield from self.spaces()
        if not (yield from self.take(self.end)):
            self.write(space)


class BraceScanner:
    """Reads one object in braces, up to the closing one, and turns it into JSON.

    ``done`` and ``broken`` say how far it is; at most one of them becomes true.
    """

    def __init__(self, quotes: Markers, schema: Schema) -> None:
        self.done = False
        self.broken = False
        self._quotes = quotes
        self._out: list[str] = []
        self._state: _State = BraceScanner._value
        self._open: list[tuple[str, Schema]] = []  # the brackets that are open: what closes them, what they hold
        self._schema = schema  # of the value that comes next
        self._in_key = False
        self._first = True  # no comma is needed before the next member
        self._pieces: list[str] = []  # a key or a bare word, so far
        self._json = JSONScanner()  # of a string in JSON's quotes

    @property
    def in_string(self) -> bool:
        """Whether what comes next stands inside a string that is a value."""
        return self._state is BraceScanner._string and not self._in_key

    def take(self) -> str:
        """Return the JSON that became certain since the last call. Mutates."""
        piece = "".join(self._out)
        self._out.clear()
        return piece

    def feed(self, text: str, pos: int = 0) -> int:
        """Read on from ``pos`` until the object ends, breaks, or more text is needed; return where that is. Mutates."""
        end = len(text)
        while pos < end and not self.done and not self.broken:
            state = self._state
            reached = state(self, text, pos)
            if reached == pos and self._state is state:
                break  # what stands here may be the beginning of a quote
            pos = reached
        return pos

    # -- states: each consumes something or changes the state, and returns the new position, or waits --

    def _value(self, text: str, pos: int) -> int:
        pos = skip_space(text, pos)
        if pos == len(text):
            return pos
        if text[pos] in _CLOSERS:
            self._open.append((_CLOSERS[text[pos]], self._schema))
            self._out.append(text[pos])
            self._first = True
            self._state = BraceScanner._member
            return pos + 1
        return self._begin_text(text, pos, BraceScanner._word)

    def _member(self, text: str, pos: int) -> int:
        """Expect a member or the closing bracket."""
        pos = skip_space(text, pos)
        if pos == len(text):
            return pos
        closer, schema = self._open[-1]
        if text[pos] == closer:
            return self._close(pos)
        if not self._first:
            self._out.append(",")
        if closer == "]":
            self._schema = schema.items
            self._state = BraceScanner._value
        else:
            self._in_key = True
            self._state = BraceScanner._key
        return pos

    def _key(self, text: str, pos: int) -> int:
        return self._begin_text(text, pos, BraceScanner._bare_key)

    def _begin_text(self, text: str, pos: int, bare: _State) -> int:
        """Begin a string, or a word, which ``bare`` reads."""
        marker = self._quotes.at(text, pos)
        if marker is None:
            return pos
        if marker:
            self._state = BraceScanner._string
            if not self._in_key:
                self._out.append('"')
        elif text[pos] == '"':
            self._json = JSONScanner()
            self._state = BraceScanner._json_string
        else:
            self._state = bare
        return pos + len(marker)

    def _string(self, text: str, pos: int) -> int:
        found = self._quotes.find(text, pos)
        piece = text[pos : found.stop]
        if self._in_key:
            self._pieces.append(piece)
        elif piece:
            self._out.append(json_text(piece)[1:-1])
        if not found.marker:
            return found.stop
        if self._in_key:
            self._end_key(self._take_pieces())
        else:
            self._out.append('"')
            self._state = BraceScanner._after
        return found.next

    def _json_string(self, text: str, pos: int) -> int:
        """Read a string in the quotes of JSON, which models write when they forget their own."""
        pos = self._json.feed(text, pos)
        pieces = self._pieces if self._in_key else self._out
        pieces.append(self._json.take())
        self.broken = self._json.broken
        if self._json.done and self._in_key:
            self._end_key(decode_string(self._take_pieces()))
        elif self._json.done:
            self._state = BraceScanner._after
        return pos

    def _bare_key(self, text: str, pos: int) -> int:
        pos = self._read_piece(_KEY, text, pos)
        if pos < len(text):
            key = self._take_pieces().strip()
            self.broken = not key
            self._end_key(key)
        return pos

    def _word(self, text: str, pos: int) -> int:
        pos = self._read_piece(_WORD, text, pos)
        if pos < len(text):
            word = self._take_pieces().strip()
            self.broken = any(quote in word for quote in self._quotes.markers)
            self._out.append(self._schema.json_of(word))
            self._state = BraceScanner._after
        return pos

    def _colon(self, text: str, pos: int) -> int:
        pos = skip_space(text, pos)
        if pos == len(text):
            return pos
        if text[pos] != ":":
            self.broken = True
            return pos
        self._out.append(":")
        self._state = BraceScanner._value
        return pos + 1

    def _after(self, text: str, pos: int) -> int:
        """Expect a comma or the closing bracket."""
        pos = skip_space(text, pos)
        if pos == len(text):
            return pos
        if text[pos] == self._open[-1][0]:
            return self._close(pos)
        if text[pos] != ",":
            self.broken = True
            return pos
        self._first = False
        self._state = BraceScanner._member
        return pos + 1

    # -- transitions --

    def _read_piece(self, characters: re.Pattern[str], text: str, pos: int) -> int:
        match = characters.match(text, pos)
        if match is None:
            return pos
        self._pieces.append(match.group())
        return match.end()

    def _take_pieces(self) -> str:
        text = "".join(self._pieces)
        self._pieces.clear()
        return text

    def _end_key(self, key: str) -> None:
        self._out.append(json_text(key))
        self._schema = self._open[-1][1].member(key)
        self._in_key = False
        self._state = BraceScanner._colon

    def _close(self, pos: int) -> int:
        closer, _ = self._open.pop()
        self._out.append(closer)
        self._state = BraceScanner._after
        self.done = not self._open
        return pos + 1
