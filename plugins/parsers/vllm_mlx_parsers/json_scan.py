"""Reading JSON from a stream, piece by piece, and repairing what models get wrong on the way.

``JSONScanner`` reads one value; ``JSONObjectScanner`` reads an object member by member. Both look at every character
once. What they pass on is valid JSON, with these repairs:

- control characters inside strings (a raw newline above all) are escaped;
- ``\\'`` becomes ``'``, and the backslash of any other escape that JSON does not know is doubled;
- a comma before a closing bracket is dropped;
- strings in single quotes, as Python writes them, get double ones;
- Python's ``True``, ``False`` and ``None`` become JSON's.

Anything else that is not JSON is broken, at the first character that shows it. Closing brackets that are missing there
can be added: only the caller knows whether what follows says that the value has ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from .scan import SPACE, skip_space

PLAIN_STRING = re.compile(r'[^"\\\x00-\x1f]+')
"""What needs no escape inside a JSON string."""
_QUOTED = {'"': PLAIN_STRING, "'": re.compile(r"""[^'"\\\x00-\x1f]+""")}
"""What becomes itself inside a string, by the string's quotes."""
_PLAIN_JSON_STRING = re.compile(r'"[^"\\\x00-\x1f\ud800-\udfff]*"')
_WORD = re.compile(r"[A-Za-z0-9.+-]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERALS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_CONTROLS = {chr(code): json.dumps(chr(code))[1:-1] for code in range(0x20)}
_CLOSERS = {"{": "}", "[": "]"}
_HEX = frozenset("0123456789abcdefABCDEF")

_State: TypeAlias = "Callable[[Any, str, int], int]"


class JSONScanner:
    """Reads one JSON value. ``done`` and ``broken`` say how far it is; at most one of them becomes true."""

    __slots__ = ("_closers", "_escape", "_gap", "_in_key", "_out", "_quote", "_state", "_word", "broken", "done")

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self._out: list[str] = []
        self._state: _State = JSONScanner._value
        self._closers: list[str] = []  # the brackets that are open, as what closes them
        self._in_key = False
        self._quote = '"'
        self._gap: list[str] = []  # a comma and the space after it, dropped if a bracket closes next
        self._word: list[str] = []
        self._escape = ""

    @property
    def in_string(self) -> bool:
        """Whether what comes next stands inside a string that is a value, in double quotes."""
        return self._state is JSONScanner._string and not self._in_key and self._quote == '"'

    def feed(self, text: str, pos: int = 0) -> int:
        """Read on from ``pos`` until the value ends, breaks, or the text ends; return the position reached.

        A character that is not part of the value is not consumed. Mutates.
        """
        end = len(text)
        while pos < end and not self.done and not self.broken:
            pos = self._state(self, text, pos)
        return pos

    def finish(self) -> None:
        """The text has ended: a number or literal that stands alone is complete now. Mutates."""
        if self._state is JSONScanner._scalar:
            self._end_scalar()

    def close(self) -> bool:
        """Add the closing brackets that are missing after a complete member; return whether the value is done. Mutates.

        May be called where the value broke, because what stands there can only come after it.
        """
        self.finish()
        if self._state is JSONScanner._after:
            self._out += reversed(self._closers)
            self._closers.clear()
            self.done, self.broken = True, False
        return self.done

    def take(self) -> str:
        """Return the repaired JSON that was read since the last call. Mutates."""
        out = self._out
        if not out:
            return ""
        piece = out[0] if len(out) == 1 else "".join(out)
        out.clear()
        return piece

    # -- states: each consumes something or changes the state, and returns the new position --

    def _value(self, text: str, pos: int) -> int:
        if text[pos] in SPACE:
            pos = self._space(text, pos, self._out)
            if pos == len(text):
                return pos
        return self._begin_value(text, pos)

    def _space(self, text: str, pos: int, out: list[str]) -> int:
        start = pos
        pos = skip_space(text, pos)
        out.append(text[start:pos])
        return pos

    def _begin_value(self, text: str, pos: int) -> int:
        char = text[pos]
        if char in _QUOTED:
            return self._begin_string(char, pos, in_key=False)
        if char in _CLOSERS:
            self._closers.append(_CLOSERS[char])
            self._out.append(char)
            self._state = JSONScanner._member
            return pos + 1
        if _WORD.match(char):
            self._state = JSONScanner._scalar
            return pos
        return self._break(pos)

    def _member(self, text: str, pos: int) -> int:
        """Expect a member, or the closing bracket: after an opening bracket or after a comma."""
        if text[pos] in SPACE:
            pos = self._space(text, pos, self._gap)
            if pos == len(text):
                return pos
        char = text[pos]
        if char == self._closers[-1]:
            self._gap.clear()
            return self._close(char, pos)
        if self._gap:
            self._out += self._gap
            self._gap.clear()
        if self._closers[-1] == "]":
            return self._begin_value(text, pos)
        if char not in _QUOTED:
            return self._break(pos)
        return self._begin_string(char, pos, in_key=True)

    def _begin_string(self, quote: str, pos: int, *, in_key: bool) -> int:
        self._in_key, self._quote = in_key, quote
        self._out.append('"')
        self._state = JSONScanner._string
        return pos + 1

    def _colon(self, text: str, pos: int) -> int:
        if text[pos] in SPACE:
            pos = self._space(text, pos, self._out)
            if pos == len(text):
                return pos
        if text[pos] != ":":
            return self._break(pos)
        self._out.append(":")
        self._state = JSONScanner._value
        return pos + 1

    def _after(self, text: str, pos: int) -> int:
        """Expect a comma or the closing bracket."""
        if text[pos] in SPACE:
            pos = self._space(text, pos, self._out)
            if pos == len(text):
                return pos
        char = text[pos]
        if char == ",":
            self._gap.append(char)
            self._state = JSONScanner._member
            return pos + 1
        return self._close(char, pos) if char == self._closers[-1] else self._break(pos)

    def _string(self, text: str, pos: int) -> int:
        match = _QUOTED[self._quote].match(text, pos)
        if match is not None:
            self._out.append(match.group())
            pos = match.end()
            if pos == len(text):
                return pos
        char = text[pos]
        if char == self._quote:
            self._out.append('"')
            if self._in_key:
                self._state = JSONScanner._colon
            else:
                self._end_value()
        elif char == "\\":
            self._state = JSONScanner._escaped
        elif char == '"':
            self._out.append('\\"')
        else:
            self._out.append(_CONTROLS[char])
        return pos + 1

    def _escaped(self, text: str, pos: int) -> int:
        char = text[pos]
        self._state = JSONScanner._string
        if char == "u":
            self._escape = "u"
            self._state = JSONScanner._unicode
        elif char in '"\\/bfnrt':
            self._out.append("\\" + char)
        elif char == "'":
            self._out.append(char)
        elif char in _CONTROLS:
            self._out.append(_CONTROLS[char])
        else:
            self._out.append("\\\\")
            return pos
        return pos + 1

    def _unicode(self, text: str, pos: int) -> int:
        char = text[pos]
        if char not in _HEX:
            self._out.append("\\\\" + self._escape)
            self._state = JSONScanner._string
            return pos
        self._escape += char
        if len(self._escape) == 5:
            self._out.append("\\" + self._escape)
            self._state = JSONScanner._string
        return pos + 1

    def _scalar(self, text: str, pos: int) -> int:
        match = _WORD.match(text, pos)
        if match is not None:
            self._word.append(match.group())
            pos = match.end()
        if pos < len(text):
            self._end_scalar()
        return pos

    # -- transitions --

    def _end_scalar(self) -> None:
        word = "".join(self._word)
        self._word.clear()
        if word in _LITERALS:
            self._out.append(_LITERALS[word])
        elif _NUMBER.fullmatch(word):
            self._out.append(word)
        else:
            self.broken = True
            return
        self._end_value()

    def _close(self, char: str, pos: int) -> int:
        self._closers.pop()
        self._out.append(char)
        self._end_value()
        return pos + 1

    def _end_value(self) -> None:
        self._state = JSONScanner._after
        self.done = not self._closers

    def _break(self, pos: int) -> int:
        self.broken = True
        return pos


class JSONObjectScanner:
    """Reads one JSON object and hands over its members; subclass it and override ``value`` and ``member``.

    ``done`` and ``broken`` say how far it is, ``refused`` that it broke because of what it says. White space before the
    opening brace is skipped.
    """

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self.refused = False
        self._state: _State = JSONObjectScanner._open
        self.scanner = JSONScanner()
        """What reads the key or value that was begun last."""
        self._key_json: list[str] = []
        self._key = ""

    def value(self, key: str, json: str) -> None:
        """More of the value of the member ``key``: repaired JSON, not empty, cut anywhere. Override it."""

    def member(self, key: str) -> None:
        """The value of the member ``key`` is complete. Override it."""

    def refuse(self) -> None:
        """Say that the object is not what it should be: it is broken for good. Mutates."""
        self.broken = self.refused = True

    @property
    def after_member(self) -> bool:
        """Whether a member was read, so that a comma or the closing brace comes next."""
        return self._state is JSONObjectScanner._after

    def feed(self, text: str, pos: int = 0) -> int:
        """Read on from ``pos`` until the object ends, breaks, or the text ends; return where that is. Mutates."""
        end = len(text)
        while pos < end and not self.done and not self.broken:
            pos = self._state(self, text, pos)
        return pos

    def close(self) -> bool:
        """Add the closing brackets that are missing; return whether that completes it. See ``JSONScanner``. Mutates."""
        if not self.refused and self._state is JSONObjectScanner._read_value and self.scanner.close():
            self._take_value()
        self.done = self.after_member and not self.refused
        self.broken = not self.done
        return self.done

    def _open(self, text: str, pos: int) -> int:
        return self._expect("{", JSONObjectScanner._first, text, pos)

    def _first(self, text: str, pos: int) -> int:
        """Expect a key or the closing brace."""
        pos = skip_space(text, pos)
        if pos == len(text):
            return pos
        if text[pos] == "}":
            self.done = True
            return pos + 1
        if text[pos] not in _QUOTED:
            self.broken = True
            return pos
        self.scanner = JSONScanner()
        self._state = JSONObjectScanner._read_key
        return pos

    def _next(self, text: str, pos: int) -> int:
        """Expect the same after a comma. A brace is no key: the comma stood behind the object, which is not closed."""
        pos = skip_space(text, pos)
        if text.startswith("{", pos):
            self._state = JSONObjectScanner._after
            self.broken = True
            return pos
        return self._first(text, pos)

    def _read_key(self, text: str, pos: int) -> int:
        pos = self.scanner.feed(text, pos)
        self._key_json.append(self.scanner.take())
        if self.scanner.done:
            self._key = decode_string("".join(self._key_json))
            self._key_json.clear()
            self._state = JSONObjectScanner._colon
        return pos

    def _colon(self, text: str, pos: int) -> int:
        return self._expect(":", JSONObjectScanner._begin_value, text, pos)

    def _begin_value(self, text: str, pos: int) -> int:
        pos = skip_space(text, pos)
        if pos < len(text):
            self.scanner = JSONScanner()
            self._state = JSONObjectScanner._read_value
        return pos

    def _read_value(self, text: str, pos: int) -> int:
        pos = self.scanner.feed(text, pos)
        self._take_value()
        if self.scanner.broken:
            self.broken = True
        return pos

    def _take_value(self) -> None:
        piece = self.scanner.take()
        if piece:
            self.value(self._key, piece)
        if self.scanner.done:
            self._state = JSONObjectScanner._after
            self.member(self._key)

    def _after(self, text: str, pos: int) -> int:
        pos = skip_space(text, pos)
        if pos == len(text):
            return pos
        if text[pos] == "}":
            self.done = True
        elif text[pos] == ",":
            self._state = JSONObjectScanner._next
        else:
            self.broken = True
            return pos
        return pos + 1

    def _expect(self, char: str, then: _State, text: str, pos: int) -> int:
        pos = skip_space(text, pos)
        if pos == len(text):
            return pos
        if text[pos] != char:
            self.broken = True
            return pos
        self._state = then
        return pos + 1


def decode_string(text: str) -> str:
    """Return the value of a JSON string. Half a surrogate pair, which no UTF-8 can carry, becomes U+FFFD.

    Raises ValueError if ``text`` is not a JSON string.
    """
    if _PLAIN_JSON_STRING.fullmatch(text):
        return text[1:-1]
    value = json.loads(text)
    if not isinstance(value, str):
        raise ValueError(f"{text!r} is not a JSON string.")
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def as_object(json: str) -> str | None:
    """Return arguments that are not written as an object as one, in JSON; None if that cannot be.

    ``json`` is one value. Null, an empty list and an empty string are no arguments; a string may hold an object.
    """
    if json.startswith('"'):
        text = decode_string(json)
        return repair_object(text) if text.strip(SPACE) else "{}"
    return "{}" if json == "null" or (json[0] == "[" and not json[1:-1].strip(SPACE)) else None


def repair_object(text: str) -> str | None:
    """Return ``text``, which should be one JSON object and nothing else, repaired; None if it is not one."""
    start = skip_space(text)
    if not text.startswith("{", start):
        return None
    scanner = JSONScanner()
    end = scanner.feed(text, start)
    return scanner.take() if scanner.done and skip_space(text, end) == len(text) else None
