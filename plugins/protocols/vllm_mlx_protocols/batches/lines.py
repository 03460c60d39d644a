"""Reads the lines of a batch's input file as it comes, and finds what is wrong with them. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from .limits import MAX_CUSTOM_ID_CHARS, MAX_ERRORS, MAX_LINE_BYTES, MAX_LINE_DEPTH, MAX_LINES

_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A good line: its number, counted from 1, and where it is in the file."""

    number: int
    custom_id: str
    start: int
    size: int


class Fault(NamedTuple):
    """What is wrong with a file, as clients are told."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


class LineReader:
    """Takes a file in pieces and gives its lines. ``faults`` are what was wrong so far, ``is_over`` that they suffice.

    ``model`` is the one that all lines name so far, None if they differ or name none. Lines that are blank are none.
    """

    def __init__(self, endpoint: str) -> None:
        self.faults: list[Fault] = []
        self.model: str | None = None
        self._endpoint = endpoint
        self._rest = b""
        self._start = 0  # where the rest is in the file
        self._skips = False  # within a line that is too long
        self._number = 0
        self._count = 0
        self._seen: set[bytes] = set()  # digests of custom ids

    @property
    def is_over(self) -> bool:
        """Whether there is no point in reading on."""
        return len(self.faults) >= MAX_ERRORS or self._count > MAX_LINES

    def feed(self, piece: bytes) -> Iterator[Line]:
        """Yield the lines that end in this piece; must be exhausted. Mutates."""
        *ended, rest = (self._rest + piece).split(b"\n")
        for line in ended:
            yield from self._end_line(line)
            self._start += len(line) + 1
        if len(rest) > MAX_LINE_BYTES:
            self._start += len(rest)
            rest, self._skips = b"", True
        self._rest = rest

    def finish(self) -> Iterator[Line]:
        """Yield the last line, if it has no end; must be exhausted. Mutates."""
        yield from self._end_line(self._rest)
        if not self._count and not self.faults:
            self.faults.append(Fault("empty_file", "The input file has no lines."))

    def _end_line(self, line: bytes) -> Iterator[Line]:
        self._number += 1
        if self._skips or len(line) > MAX_LINE_BYTES:
            self._skips = False
            self._blame("line_too_long", f"This line is longer than {MAX_LINE_BYTES:,} bytes.")
        elif (line.removeprefix(_BOM) if self._number == 1 else line).strip() and not self.is_over:
            yield from self._check(line)

    def _check(self, line: bytes) -> Iterator[Line]:
        self._count += 1
        if self.is_over:
            self._blame("too_many_tasks", f"The input file has more than {MAX_LINES:,} lines.")
            return
        try:
            value = decode(line)
        except ValueError:
            self._blame("invalid_json_line", "This line is not parseable as valid JSON.")
            return
        if not isinstance(value, dict):
            self._blame("invalid_json_line", "This line is not a JSON object.")
            return
        fault = self._fault(value)
        if fault is not None:
            self._blame(*fault)
            return
        self._note_model(value["body"].get("model"))
        yield Line(self._number, value["custom_id"], self._start, len(line))

    def _fault(self, value: Mapping[str, Any]) -> tuple[str, str, str] | None:
        for name, kind, what in (
            ("custom_id", str, "a string"),
            ("method", str, "a string"),
            ("url", str, "a string"),
            ("body", dict, "an object"),
        ):
            if value.get(name) is None:
                return "missing_required_parameter", f"Missing required parameter: '{name}'.", name
            if not isinstance(value[name], kind):
                return "invalid_request", f"{name} must be {what}.", name
        custom_id = value["custom_id"]
        if not 0 < len(custom_id) <= MAX_CUSTOM_ID_CHARS:
            return "invalid_request", f"custom_id must have 1 to {MAX_CUSTOM_ID_CHARS} characters.", "custom_id"
        if value["method"] != "POST":
            return "invalid_request", "method must be POST.", "method"
        if value["url"] != self._endpoint:
            return "url_mismatch", f"url must be {self._endpoint}, the batch's endpoint.", "url"
        digest = hashlib.blake2b(custom_id.encode(), digest_size=16).digest()
        if digest in self._seen:
            return "duplicate_custom_id", "Another line has the same custom_id.", "custom_id"
        self._seen.add(digest)
        return None

    def _note_model(self, name: object) -> None:
        if self._count == 1:
            self.model = name if isinstance(name, str) else None
        elif name != self.model:
            self.model = None

    def _blame(self, code: str, message: str, param: str | None = None) -> None:
        if len(self.faults) < MAX_ERRORS:
            self.faults.append(Fault(code, message, param, self._number))


def decode(line: bytes) -> Any:
    """Return the JSON of a line, with half characters replaced as in the body of any request. Raises ValueError."""
    try:
        text = line.removeprefix(_BOM).decode()
        if "\\ud" in text or "\\uD" in text:
            text = json.dumps(json.loads(text), ensure_ascii=False)
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if _is_deeper(value, MAX_LINE_DEPTH):
        raise ValueError("nested too deeply")
    return value


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(depth):
        level = [inner for each in level for inner in _values(each) if isinstance(inner, (dict, list))]
    return bool(level)


def _values(container: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container
