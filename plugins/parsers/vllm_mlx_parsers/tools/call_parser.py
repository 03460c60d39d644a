"""The base of every tool parser: content with calls in it, and the events both become."""

from __future__ import annotations

import re
import secrets
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Protocol

from vllm_mlx_core.api import (
    ParserContext,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolEvent,
    ToolParser,
)
from vllm_mlx_parsers.code_quotes import CodeQuotes
from vllm_mlx_parsers.grammar import GrammarParser, Malformed, PushScanner, Reading, Unfinished
from vllm_mlx_parsers.json_scan import PLAIN_STRING, JSONScanner
from vllm_mlx_parsers.scan import SPACE, Markers

from .json_call import JSONCall

SURROUNDINGS = "kept; white space next to calls joins what it stands between, or goes"

_TICKS = re.compile("`+")
_NAME = re.compile(r"[^\s<>{}()\[\]\"'`,;\\]{1,256}")
"""What can be the name of a tool that was not declared: a model's slip is none, and names are logged."""
_BEHIND_CALL = ("]", "{", ";")
"""What stands behind a call in a list, and nowhere inside it between two members."""
_plain_string = PLAIN_STRING.fullmatch


class ArgumentScanner(PushScanner, Protocol):
    """Something that reads a value piece by piece and turns it into JSON."""

    @property
    def in_string(self) -> bool:
        """Whether what comes next stands inside a string, all of which has been handed over so far."""
        ...

    def take(self) -> str:
        """Return the JSON that became certain since the last call. Mutates."""
        ...


class CallParser(GrammarParser[ToolEvent], ToolParser):
    """Content in which calls begin with one of ``starts``. Subclass it, set ``starts`` and write ``calls``.

    - Calls are cut out of the content. Between two texts that had calls between them stands the white space that was
      before the calls, or if there was none, that after them; other white space next to calls is dropped. Text without
      calls is passed on to the last character.
    - A start marker is only text where it is not followed by what ``calls`` reads (it raises Malformed), inside a code
      fence, and directly after a backtick that opens a code span: an answer may talk about the format. The text is
      then passed on as it was written, up to the last of the ``restarts`` in it, where reading begins anew. If the
      call's ``ToolCallStart`` was out by then, it never gets its ``ToolCallEnd``.
    - A call that the end of the stream cuts off (Unfinished) has no ``ToolCallEnd``; if its name was not known yet, it
      leaves nothing.
    - A call counts whether or not the client declared its name: a client can tell the model that there is no such
      tool, but can do nothing with raw markup. Formats without a marker of their own are stricter: set ``bare``, and
      they read only declared names, and leave what was cut off as text.
    """

    starts: ClassVar[tuple[str, ...]]
    """Markers that begin one call or a list of calls."""
    ends: ClassVar[tuple[str, ...]] = ()
    """Markers that close a call or a list of calls. A call that is not complete after one of them is malformed, even
    if the stream ends there."""
    strays: ClassVar[tuple[str, ...]] = ()
    """Closing markers that are dropped where they stand directly behind a call: one too many. If not set, the ends."""
    restarts: ClassVar[tuple[str, ...]] = ()
    """Those of ``starts`` that begin a call even within one that turned out to be broken: the model began again."""
    bare: bool = False
    """Whether ``starts`` are ordinary text, so that what follows is a call only if it names a declared tool. ``calls``
    may set it, where only some of them are."""
    fences: ClassVar[bool] = True
    """Whether calls inside Markdown code fences, and at the beginning of code spans, are only text."""
    fenced: ClassVar[bool] = False
    """Whether the backticks that open a code fence are a start marker too, because calls may be fenced. A fence that
    holds something else is text, to its end. Needs ``fences``."""
    frame: ClassVar[tuple[str, ...]] = ()
    """Markers around the answer: cut out as calls are, with the white space next to them. One counts where a line
    begins, or after another that counted; elsewhere the answer only mentions it."""
    surroundings = SURROUNDINGS

    _starts: ClassVar[Markers]
    _unseen: ClassVar[frozenset[str]]  # stop tokens, if they come up in the text
    _strays: ClassVar[frozenset[str]]
    _restart: ClassVar[re.Pattern[str] | None]
    _plain_text: ClassVar[Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not hasattr(cls, "starts"):
            return  # a base of other parsers
        cls._unseen = frozenset(cls.stop_tokens).difference(cls.starts)
        cls._strays = frozenset(cls.strays or cls.ends).difference(cls.starts, cls._unseen)
        cls._starts = Markers(*cls.starts, *cls.frame, *cls._unseen, *cls._strays, *("`" * cls.fences))
        cls._restart = re.compile("|".join(map(re.escape, cls.restarts))) if cls.restarts else None
        first = re.escape(cls._starts.first)
        cls._plain_text = re.compile(f"[^{first}]*[^{first}>{SPACE}]").fullmatch

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._num_calls = 0
        self._open = False  # a call has started and not ended
        self._brace = ""  # closes the arguments, perhaps: sent when the call is complete, or when more of it comes
        self._settled = False  # the record begins after a call that ended
        self._code = CodeQuotes()
        self._framed = False  # a marker of the frame was cut out
        self._wrote = False
        self._called = False  # a call has started, or something else was cut out, since the last text
        self._space: list[str] = []  # white space before the calls
        self._after: list[str] = []  # white space after the last call

    # -- to be written by a format --------------------------------------------------------------------------------

    @abstractmethod
    def calls(self, marker: str) -> Reading[None]:
        """Read what follows the start ``marker``: one call or several, and what closes them.

        Uses ``start_call``, ``arguments`` and ``end_call``, or what builds on them. Raises Malformed if this is no
        call, Unfinished if the stream ends within one.
        """

    def new_id(self, name: str) -> str:
        """Return the id of the next call, for formats that write none: ``call_`` and 24 hexadecimal digits."""
        return f"call_{secrets.token_hex(12)}"

    def openings(self, markers: Markers) -> Reading[None]:
        """Read white space, and opening ``markers`` that come once more than they should. Raises Unfinished."""
        yield from self.spaces()
        while (yield from self.one_of(markers)):
            yield from self.spaces()

    # -- the grammar ----------------------------------------------------------------------------------------------

    def grammar(self) -> Reading[None]:
        """Read content and calls in turn."""
        while marker := (yield from self.content()):
            self.record(marker)
            self._settled = False
            try:
                yield from self.calls(marker)
            except Malformed as failure:
                self._give_up(cut_off=isinstance(failure, Unfinished))
            else:
                self._code.leave()
            self._raw = None
        if not self._called and self._space:
            self.events.append(TextDelta("".join(self._space)))

    def content(self) -> Reading[str]:
        """Pass content on up to a start marker that is not quoted; return it, or "" at the end of the stream."""
        while True:
            marker = yield from self._until_marker()
            if marker == "`":
                marker = yield from self._backticks()
                if marker:
                    return marker
            elif marker in self._unseen:
                continue
            elif marker and self._code.fence:
                self.write(marker)
            elif marker in self._strays:
                if not self._called:
                    self.write(marker)
            elif marker in self.frame:
                if self._framed or self.begins_line:
                    self._framed = True
                    self._cut_out()
                else:
                    self.write(marker)
            else:
                return marker

    def _until_marker(self) -> Reading[str]:
        while True:
            found = self._starts.find(self.text, self.pos, ended=self.ended)
            if found.stop > self.pos:
                self.write(self.text[self.pos : found.stop])
            self.pos = found.next
            if found.marker or self.ended:
                return found.marker
            if self._wrote and not self._space and not self._called and self._code.settled:
                self.pass_on(self._plain_text, TextDelta)
            yield

    def _backticks(self) -> Reading[str]:
        """Read backticks, one of which was read, and a marker that they quote. Return them if they are a start."""
        ticks = 1 + len((yield from self.run(_TICKS)))
        quote = "`" * ticks
        was_fenced = self._code.fence
        opens_span = self._code.ticks(ticks)
        if self.fenced and self._code.fence and not was_fenced:
            return quote
        self.write(quote)
        if opens_span:
            with suppress(Unfinished):
                while quoted := (yield from self.one_of(self._starts)):  # a call often begins with several
                    if quoted == "`":
                        self.pos -= 1
                        break
                    if quoted not in self._unseen:
                        self.write(quoted)
                    self.write((yield from self.spaces()))
        return ""

    def _give_up(self, *, cut_off: bool) -> None:
        raw = self.recorded()
        if cut_off and not any(end in raw for end in self.ends) and (self._open or self._settled or not self.bare):
            self._called = True
            self.pos = len(self.text)
            return
        self._open = False
        self._brace = ""
        restart = self._last_restart(raw)
        self.write(raw[:restart])
        self.text, self.pos = raw[restart:] + self.text[self.pos :], 0

    def _last_restart(self, raw: str) -> int:
        """Return where reading a broken call begins anew; ``len(raw)`` if it does not.

        As it is the last place, nothing is read more than twice.
        """
        last = len(raw)
        if self._restart is not None:
            for match in self._restart.finditer(raw, 1):
                last = match.start()
        return last

    @property
    def begins_line(self) -> bool:
        """Whether only white space, or a call, stands between the marker just read and the beginning of its line."""
        return self._called or not self._wrote or "\n" in "".join(self._space)

    # -- what comes out -------------------------------------------------------------------------------------------

    def _cut_out(self) -> None:
        self._called = True
        self._after.clear()

    def write(self, text: str) -> None:
        """Pass ``text`` on as content; white space at its end is held until more comes. Mutates."""
        self._code.read(text)
        if self._called:
            solid = text.lstrip(SPACE)
            self._after.append(text[: len(text) - len(solid)])
            if not solid:
                return
            self._space = [("".join(self._space) or "".join(self._after)) if self._wrote else ""]
            self._after.clear()
            self._called = False
            text = solid
        solid = text.rstrip(SPACE)
        if solid:
            self.events.append(TextDelta("".join((*self._space, solid))))
            self._space.clear()
            self._wrote = True
        if len(solid) < len(text):
            self._space.append(text[len(solid) :])

    def start_call(self, name: str, call_id: str = "") -> None:
        """Begin a call whose name is known. Mutates.

        Raises Malformed if it must be declared and is not, or is not declared and cannot be a name.
        """
        if not self.context.declares(name) and (self.bare or not _NAME.fullmatch(name)):
            raise Malformed
        self._brace = ""
        self._cut_out()
        self._open = True
        self.events.append(ToolCallStart(self._num_calls, call_id or self.new_id(name), name))
        self._num_calls += 1

    def arguments(self, json: str, *, complete: bool = False) -> None:
        """Add ``json``, not empty, to the arguments of the call that is open. Mutates.

        If they are ``complete`` their closing brace waits for the end of the call: nobody shall take the arguments of
        a call that breaks off now for those of a whole one.
        """
        json, self._brace = self._brace + json, ""
        if complete and json.endswith("}"):
            json, self._brace = json[:-1], "}"
        if json:
            self.events.append(ToolCallArguments(self._num_calls - 1, json))

    def end_call(self) -> None:
        """End the call that is open; its arguments are complete. What follows is recorded afresh. Mutates."""
        if self._brace:
            self.events.append(ToolCallArguments(self._num_calls - 1, self._brace))
            self._brace = ""
        self.events.append(ToolCallEnd(self._num_calls - 1))
        self._open = False
        self._settled = True
        self.record()

    def pass_arguments_on(self, plain: Any, to_json: Callable[[str], str] | None = None) -> None:
        """Until something else is read, turn chunks for which ``plain`` is true into arguments at once. Mutates.

        ``to_json`` makes JSON of a chunk that is none yet.
        """
        index = self._num_calls - 1
        if to_json is None:
            self.pass_on(plain, partial(ToolCallArguments, index))
        else:
            self.pass_on(plain, lambda text: ToolCallArguments(index, to_json(text)))

    def scan_arguments(self, scanner: ArgumentScanner, plain: Any) -> Reading[None]:
        """Read a value with ``scanner`` and add it to the arguments of the call that is open.

        ``plain`` says which text inside a string becomes itself in JSON. Raises Malformed, Unfinished.
        """
        while True:
            self.pos = scanner.feed(self.text, self.pos)
            if json := scanner.take():
                self.arguments(json, complete=scanner.done)
            if scanner.done:
                return
            if scanner.broken:
                raise Malformed
            if self.ended:
                raise Unfinished
            if scanner.in_string:
                self.pass_arguments_on(plain)
            yield

    # -- calls and arguments in JSON ------------------------------------------------------------------------------

    def json_arguments(self, scanner: JSONScanner, ends: Markers | None) -> Reading[None]:
        """Read the rest of an object and add it to the arguments of the call that is open.

        Closing brackets that are missing where one of ``ends`` follows are added. Raises Malformed, Unfinished.
        """
        try:
            yield from self.scan_arguments(scanner, _plain_string)
        except Malformed:
            if not scanner.broken or ends is None or not (yield from self.ahead(ends)) or not scanner.close():
                raise
            self.arguments(scanner.take())

    def _call_ends(self, call: JSONCall, ends: Markers | None) -> Reading[bool]:
        """Return whether the call's list ends here, or the next call begins, or one of ``ends`` follows."""
        if call.after_member and self.text.startswith(_BEHIND_CALL, self.pos):
            return True
        return ends is not None and bool((yield from self.ahead(ends)))

    def json_call(self, call: JSONCall, ends: Markers | None) -> Reading[None]:
        """Read one call written as a JSON object; brackets may be missing as for ``json_arguments``.

        The last may also be missing at the end of a list, and where the next call begins.
        Raises Malformed, Unfinished.
        """
        while True:
            self.pos = call.feed(self.text, self.pos)
            if call.name is not None:
                name, call.name = call.name, None
                self.start_call(name, call.id)
            if json := call.take():
                self.arguments(json, complete=call.arguments_done)
            if call.done:
                self.end_call()
                return
            if call.broken:
                if call.refused or not ((yield from self._call_ends(call, ends)) and call.close()):
                    raise Malformed
            elif self.ended:
                raise Unfinished
            elif (scanner := call.streaming) is not None:
                yield from self.json_arguments(scanner, ends)
            else:
                yield
