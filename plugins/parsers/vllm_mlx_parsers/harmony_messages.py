"""The messages of Harmony, the format of gpt-oss: what their headers say, and how they are read from a stream.

A completion is a row of messages, ``<|start|>HEADER<|message|>BODY<|end|>``. The prompt ends with the beginning of the
first header, ``<|start|>assistant``. A header names the author's role, a channel after ``<|channel|>``, a recipient
(``to=…``) in either part, and perhaps the type of the body, after ``<|constrain|>`` or bare.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, TypeVar

from vllm_mlx_core.api import ParserContext

from .grammar import GrammarParser, Reading, Unfinished
from .scan import SPACE, Markers

E = TypeVar("E")

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
OPENING = (START, CHANNEL, CONSTRAIN, MESSAGE)
"""Markers of a header. Any of them may be missing."""
CLOSING = (END, CALL, RETURN)
"""Markers that end a message; so does the header of the next one."""
STRUCTURE = (*OPENING, *CLOSING)
GAP = "\n\n"
"""What is put between two messages that become one text."""

_LIMIT = 256
"""No part of a header is longer: then the marker before the body is missing."""
_WORD = re.compile(r"[^\s<]*")
_CHANNEL = re.compile("analysis|commentary|final")
_KNOWN = re.compile(f"assistant|{_CHANNEL.pattern}")
_RECIPIENT = re.compile(r"to=(\S*)")
_PEOPLE = ("", "assistant", "user", "all")


class Header(NamedTuple):
    """What is known about a message before its body is read."""

    role: str = ""
    channel: str = ""
    recipient: str = ""
    body: str = ""
    """The beginning of the body, if no marker stood before it."""

    def function(self, context: ParserContext) -> str:
        """Return the name of the function that this message calls; the empty string if it is no call.

        The model's built-in tools, ``python`` and ``browser.*``, are functions only if the client declared them.
        """
        if self._is_foreign or not self.is_addressed:
            return ""
        is_builtin = self.recipient == "python" or self.recipient.startswith("browser.")
        if is_builtin and not context.declares(self.recipient):
            return ""
        return self.recipient.removeprefix("functions.")

    @property
    def is_thought(self) -> bool:
        """Whether the message, if it is no call, was not written for the user.

        That is the analysis, what goes to tools that are not there, and what the model makes up for other roles.
        """
        return self.channel == "analysis" or self._is_foreign or self.is_addressed

    @property
    def is_addressed(self) -> bool:
        """Whether the message goes to a tool, built in or not."""
        return self.recipient not in _PEOPLE

    @property
    def _is_foreign(self) -> bool:
        return bool(self.role) and not self.role.startswith("assistant")


class HarmonyReader(GrammarParser[E]):
    """The parts of a grammar that read headers. What is unknown in a header is dropped with it."""

    _in_header: ClassVar[Markers] = Markers(*STRUCTURE, "{")
    _opening: ClassVar[Markers] = Markers(*OPENING)

    def lead(self, *, first: bool = False) -> Reading[tuple[str, str]]:
        """Read what stands before the next header: at the start of the completion (``first``), or between messages.

        Returns it, and the header's first marker. If that is "" there is no header, and what was read is text; white
        space between messages is dropped. Raises Unfinished if the stream ends in what begins like a header.
        """
        space = yield from self.spaces()
        read = marker = ""
        try:
            if not first and (yield from self.take("assistant")):
                read = "assistant" + (yield from self.spaces())
            if (yield from self.take("to=")):
                read += "to="
                for _ in ("recipient", "type"):
                    read += (yield from self.run(_WORD)) + (yield from self.spaces())
            marker = yield from self.one_of(self._opening)
            if read and not marker and not (yield from self.peek()):
                raise Unfinished
        except Unfinished:
            if not first or read:
                raise
        return (space + read if first and not marker else read), marker

    def header(self, marker: str, text: str = "") -> Reading[Header]:
        """Read the rest of a header of which ``text`` and then ``marker`` were read, and what leads to the body.

        Of a part that comes twice the last counts. If the marker before the body is missing, the body begins with a
        brace, or with the second unknown word. Raises Unfinished if the stream ends within the header.
        """
        sections = {START: text}
        while marker in OPENING and marker != MESSAGE:
            section = marker
            if section == START:
                sections.clear()
            text, marker = yield from self._section()
            sections[section] = text
        header = _parse(sections)
        if marker == MESSAGE:
            return header
        self.pos -= len(marker)  # a brace, or the end of the message
        unknown = _RECIPIENT.sub("", _KNOWN.sub("", text, count=1)).lstrip(SPACE)
        is_cut_off = not marker and not (yield from self.peek())
        if is_cut_off and len(unknown.split()) < 2:
            raise Unfinished
        return header if marker == "{" or header.recipient else header._replace(body=unknown)

    def next_header(self) -> Reading[Header]:
        """Read from the end of one message to the body of the next, which may lack its header. Raises Unfinished."""
        text, marker = yield from self.lead()
        return (yield from self.header(marker, text)) if marker else Header(body=text)

    def _section(self) -> Reading[tuple[str, str]]:
        """Return a part of a header and the marker after it; "" if the stream ends or the part is too long."""
        pieces: list[str] = []
        room = _LIMIT
        while True:
            found = self._in_header.find(self.text, self.pos, ended=self.ended)
            if found.stop - self.pos > room:
                pieces.append(self.text[self.pos : self.pos + room])
                self.pos += room
                return "".join(pieces), ""
            pieces.append(self.text[self.pos : found.stop])
            room -= found.stop - self.pos
            self.pos = found.next
            if found.marker or self.ended:
                return "".join(pieces), found.marker
            yield


def _parse(sections: Mapping[str, str]) -> Header:
    role, channel = sections.get(START, ""), sections.get(CHANNEL, "")
    recipient = _RECIPIENT.search(" ".join(sections.values()))
    role, channel = _RECIPIENT.sub("", role).strip(SPACE), _RECIPIENT.sub("", channel).strip(SPACE)
    known = _CHANNEL.search(channel) or _CHANNEL.search(role)
    return Header(role, known.group() if known else channel, recipient.group(1) if recipient else "")
