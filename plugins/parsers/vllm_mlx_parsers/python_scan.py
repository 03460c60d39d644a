"""Reading Python literals from a stream, piece by piece, and turning them into JSON.

Strings come out while they are read, with Python's escapes resolved. Tuples become arrays, and keys that are not
strings become strings. What models get wrong on the way is repaired:

- a quote inside a string that nothing can follow there (``'it's'``) belongs to the string;
- raw newlines in strings with single quotes are kept;
- ``true``, ``false`` and ``null`` are JSON's, and any other bare word is a string;
- a comma before a closing bracket is dropped.

Anything else that is no literal is broken, at the first character that shows it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from .scan import skip_space

PLAIN_PYTHON = re.compile(r"""[^'"\\\x00-\x1f]+""")
"""What stands for itself inside any Python string and inside a JSON string."""
_WORD = re.compile(r"[\w.+-]+")
_LITERALS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,399})(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,3})?")
_INTEGER = re.compile(r"[+-]?(?:[0-9][0-9_]{0,399}|0[xX][0-9a-fA-F_]{1,400}|0[oO][0-7_]{1,400}|0[bB][01_]{1,400})")
_FLOAT = re.compile(r"[+-]?(?:[0-9][0-9_]{0,399}\.?[0-9_]{0,400}|\.[0-9][0-9_]{0,399})(?:[eE][+-]?[0-9]{1,3})?")
_CLOSERS = {"{": "}", "[": "]", "(": ")"}
_JSON_BRACKETS = {"(": "[", ")": "]"}
_PREFIXES = frozenset({"r", "u", "f", "b", "fr", "rf", "br", "rb"})
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\n": ""} | {
    char: char for char in "\\'\""
}
_OCTAL = frozenset("01234567")
_HEX = frozenset("0123456789abcdefABCDEF")
_HEX_LENGTH = {"x": 2, "u": 4, "U": 8}

_State: TypeAlias = "Callable[[Any, str, int], int]"


class PythonScanner:
    """Reads one literal. ``done`` and ``broken`` say how far it is; at most one of them becomes true.

    The literal is an argument of a call. The comma or parenthesis behind it, which is not consumed, shows its end.
    """

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self._out: list[str] = []
        self._state: _State = PythonScanner._value
        self._brackets: list[str] = []  # those that are open, as what closes them
        self._parentheses: list[tuple[int, int]] = []  # open and without a comma so far: depth, and place in _out
        self._in_key = False
        self._after_colon = False  # the value to be read next belongs to a key
        self._comma = False  # one was read, and is written before the next value
        self._word: list[str] = []
        self._quote = ""
        self._raw = False
        self._gap: list[str] = []  # white space after a quote that may belong to the string
        self._escape = ""

    @property
    def in_string(self) -> bool:
        """Whether what comes next stands inside a string that is a value, and is written as it comes."""
        return self._state is PythonScanner._string and not self._in_key and not self._parentheses

    def feed(self, text: str, pos: int = 0) -> int:
        """Read on from ``pos`` until the literal ends, breaks, or the text ends; return where that is. Mutates."""
        end = len(text)
        while pos < end and not self.done and not self.broken:
            pos = self._state(self, text, pos)
        return pos

    def take(self) -> str:
        """Return the JSON that became certain since the last call. Mutates."""
        certain = self._parentheses[0][1] if self._parentheses else len(self._out)
        piece = "".join(self._out[:certain])
        if certain:
            del self._out[:certain]
            self._parentheses = [(depth, place - certain) for depth, place in self._parentheses]
        return piece

    # -- states: each consumes something or changes the state, and returns the new position --

    def _value(self, text: str, pos: int) -> int:
        """Expect a value, or, after an opening bracket or a comma, the closing bracket."""
        pos = skip_space(text, pos)
        if pos == len(text):
            return pos
        char = text[pos]
        if self._closes(char) and not self._after_colon:
            return self._close(char, pos)
        self._write_comma()
        self._in_key = bool(self._brackets) and self._brackets[-1] == "}" and not self._after_colon
        if char in "'\"":
            self._begin_string(raw=False)
            return pos
        if char in _CLOSERS:
            return self._open(char, pos)
        if _WORD.match(char):
            self._state = PythonScanner._bare
            return pos
        return self._break(pos)

    def _open(self, char: str, pos: int) -> int:
        if self._in_key:
            return self._break(pos)
        self._brackets.append(_CLOSERS[char])
        if char == "(":
            self._parentheses.append((len(self._brackets), len(self._out)))
            self._out.append("")
        else:
            self._out.append(char)
        self._after_colon = False
        return pos + 1

    def _colon(self, text: str, pos: int) -> int:
        pos = skip_space(text, pos)
        if pos == len(text):
            return pos
        if text[pos] != ":":
            return self._break(pos)
        self._out.append(":")
        self._after_colon = True
        self._state = PythonScanner._value
        return pos + 1

    def _after(self, text: str, pos: int) -> int:
        """Expect a comma or the closing bracket."""
        pos = skip_space(text, pos)
        if pos == len(text):
            return pos
        char = text[pos]
        if char == ",":
            if self._parentheses and self._parentheses[-1][0] == len(self._brackets):
                self._out[self._parentheses.pop()[1]] = "["
            self._comma = True
            self._state = PythonScanner._value
            return pos + 1
        return self._close(char, pos) if self._closes(char) else self._break(pos)

    def _bare(self, text: str, pos: int) -> int:
        match = _WORD.match(text, pos)
        if match is not None:
            self._word.append(match.group())
            pos = match.end()
        if pos < len(text):
            word = "".join(self._word)
            self._word.clear()
            if text[pos] in "'\"" and word.lower() in _PREFIXES:
                self._begin_string(raw="r" in word.lower())
            else:
                self._out.append(_key(word) if self._in_key else _scalar(word))
                self._end_value()
        return pos

    # -- strings --

    def _begin_string(self, *, raw: bool) -> None:
        self._out.append('"')
        self._raw = raw
        self._quote = ""
        self._state = PythonScanner._opening

    def _opening(self, text: str, pos: int) -> int:
        """Read one quote, three, or the two of an empty string."""
        char = text[pos]
        if not self._quote or (char == self._quote[0] and len(self._quote) < 3):
            self._quote += char
            return pos + 1
        self._state = PythonScanner._closed if len(self._quote) == 2 else PythonScanner._string
        return pos

    def _string(self, text: str, pos: int) -> int:
        match = PLAIN_PYTHON.match(text, pos)
        if match is not None:
            self._out.append(match.group())
            pos = match.end()
            if pos == len(text):
                return pos
        char = text[pos]
        if char == "\\":
            self._state = PythonScanner._escaped
        elif char == self._quote:
            self._state = PythonScanner._closed
        elif char == self._quote[0]:
            self._escape = ""
            self._state = PythonScanner._closing
            return pos
        else:
            self._out.append(_inner(char))
        return pos + 1

    def _closing(self, text: str, pos: int) -> int:
        """Count quotes inside a string with three."""
        if text[pos] != self._quote[0]:
            self._out.append(_inner(self._escape))
            self._state = PythonScanner._string
            return pos
        self._escape += text[pos]
        if self._escape == self._quote:
            self._state = PythonScanner._closed
        return pos + 1

    def _closed(self, text: str, pos: int) -> int:
        """After a quote that closes: what follows tells whether it did, or whether another string is joined on."""
        start = pos
        pos = skip_space(text, pos)
        self._gap.append(text[start:pos])
        if pos == len(text):
            return pos
        char = text[pos]
        gap = "".join(self._gap)
        self._gap.clear()
        if self._may_follow(char):
            self._out.append('"')
            self._end_value()
        elif char in "'\"":
            self._raw, self._quote = False, ""
            self._state = PythonScanner._opening
        elif len(self._quote) == 1:
            self._out.append(_inner(self._quote + gap))
            self._state = PythonScanner._string
        else:
            return self._break(pos)
        return pos

    def _may_follow(self, char: str) -> bool:
        """Return whether ``char`` can stand behind a string."""
        if self._in_key:
            return char == ":"
        return char == "," or (self._closes(char) if self._brackets else char == ")")

    def _escaped(self, text: str, pos: int) -> int:
        char = text[pos]
        self._state = PythonScanner._string
        if self._raw:
            self._out.append(_inner("\\"))
            if char not in "\\'\"":
                return pos
            self._out.append(_inner(char))
        elif char in _HEX_LENGTH or char in _OCTAL:
            self._escape = char
            self._state = PythonScanner._code
        elif char in _ESCAPES:
            self._out.append(_inner(_ESCAPES[char]))
        else:
            self._out.append("\\\\")
            return pos
        return pos + 1

    def _code(self, text: str, pos: int) -> int:
        """Read the digits of a character's number."""
        char = text[pos]
        kind = self._escape[0]
        if kind in _OCTAL:
            is_digit, length = char in _OCTAL, 3
        else:
            is_digit, length = char in _HEX, 1 + _HEX_LENGTH[kind]
        if is_digit and len(self._escape) < length:
            self._escape += char
            pos += 1
            if kind in _OCTAL or len(self._escape) < length:
                return pos
        self._out.append(_character(self._escape, complete=kind in _OCTAL or len(self._escape) == length))
        self._state = PythonScanner._string
        return pos

    # -- transitions --

    def _closes(self, char: str) -> bool:
        return bool(self._brackets) and char == self._brackets[-1]

    def _write_comma(self) -> None:
        if self._comma:
            self._out.append(",")
            self._comma = False

    def _close(self, char: str, pos: int) -> int:
        depth = len(self._brackets)
        if self._parentheses and self._parentheses[-1][0] == depth:
            _, place = self._parentheses.pop()
            if place == len(self._out) - 1:
                self._out.append("[]")
        else:
            self._out.append(_JSON_BRACKETS.get(char, char))
        self._comma = False
        self._brackets.pop()
        self._end_value()
        return pos + 1

    def _end_value(self) -> None:
        if self._in_key:
            self._in_key = False
            self._state = PythonScanner._colon
            return
        self._after_colon = False
        self._state = PythonScanner._after
        self.done = not self._brackets

    def _break(self, pos: int) -> int:
        self.broken = True
        return pos


def _inner(text: str) -> str:
    """Return ``text`` as it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _character(escape: str, *, complete: bool) -> str:
    """Return what stands inside a JSON string for an escape, given without its backslash."""
    if not complete:
        return _inner("\\" + escape)
    code = int(escape, 8) if escape[0] in _OCTAL else int(escape[1:], 16)
    if 0xD800 <= code < 0xE000:
        return f"\\u{code:04x}"  # half a pair: the other half may follow
    return _inner(chr(code) if code < 0x110000 else "\\" + escape)


def _scalar(word: str) -> str:
    """Return the JSON of a bare word: a number, a literal, or a string."""
    if word in _LITERALS:
        return _LITERALS[word]
    try:
        if _JSON_NUMBER.fullmatch(word) and (word.lstrip("-").isdigit() or math.isfinite(float(word))):
            return word
        if _INTEGER.fullmatch(word):
            return str(int(word, 0))
        if _FLOAT.fullmatch(word) and math.isfinite(value := float(word)):
            return json.dumps(value)
    except ValueError:
        pass  # underscores or leading zeros where Python allows none
    return f'"{_inner(word)}"'


def _key(word: str) -> str:
    """Return the JSON of a bare word that is a key: JSON has only strings there."""
    json_word = _scalar(word)
    return json_word if json_word.startswith('"') else f'"{json_word}"'
