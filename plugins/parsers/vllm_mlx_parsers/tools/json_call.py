"""One call written as a JSON object: ``{"name": …, "arguments": {…}}``."""

from __future__ import annotations

import secrets

from vllm_mlx_core.api import ToolCallArguments, ToolCallEnd, ToolCallStart, ToolEvent
from vllm_mlx_parsers.json_scan import JSONObjectScanner, decode_string, repair_object


def new_call_id() -> str:
    """Return a random id in the form that clients expect: ``call_`` and 24 hexadecimal digits."""
    return f"call_{secrets.token_hex(12)}"


class JSONCall(JSONObjectScanner):
    """Reads one call and makes its events, arguments while they are generated.

    Name and arguments may come in either order, and other members are ignored. ``ToolCallStart`` comes with the name.
    ``parameters`` is read as ``arguments``; of several, the first counts. Missing, null and empty arguments are
    ``{}``; arguments that are themselves JSON inside a string are decoded. Anything but an object is broken, and so is
    an object without a name.
    """

    def __init__(self, index: int) -> None:
        super().__init__()
        self.started = False
        self._index = index
        self._events: list[ToolEvent] = []
        self._name: list[str] = []
        self._arguments_key: str | None = None
        self._arguments_done = False
        self._streams = False  # the arguments are an object, to be passed on as it comes
        self._held: list[str] = []  # arguments that cannot be passed on yet

    def take(self) -> list[ToolEvent]:
        """Return the events since the last call. Mutates."""
        events, self._events = self._events, []
        return events

    def feed(self, text: str, pos: int = 0) -> int:
        """Read on; once ``done`` is true the last event is ``ToolCallEnd``. Mutates."""
        pos = super().feed(text, pos)
        if self.done and not self.broken:
            self._end()
        return pos

    def value(self, key: str, json: str) -> None:
        """Take a piece of the name or of the arguments."""
        if key == self._arguments_key and not self._arguments_done:
            self._more_arguments(json)
        elif key == "name" and not self.started:
            self._name.append(json)
        elif key in ("arguments", "parameters") and self._arguments_key is None:
            self._arguments_key = key
            self._streams = json[0] == "{"
            self._more_arguments(json)

    def member(self, key: str) -> None:
        """Start the call once its name is complete, and decode arguments that came in a string."""
        if key == "name" and not self.started:
            self._start()
        elif key == self._arguments_key and not self._arguments_done:
            self._arguments_done = True
            if not self._streams:
                self._decode_arguments()

    def _start(self) -> None:
        name = "".join(self._name)
        if not name.startswith('"') or name == '""':
            self.broken = True
            return
        self.started = True
        self._events.append(ToolCallStart(self._index, new_call_id(), decode_string(name)))
        if self._held and (self._streams or self._arguments_done):
            self._release()

    def _more_arguments(self, json: str) -> None:
        if self.started and self._streams:
            self._events.append(ToolCallArguments(self._index, json))
        else:
            self._held.append(json)

    def _decode_arguments(self) -> None:
        raw = "".join(self._held)
        arguments: str | None = None
        if raw == "null":
            arguments = "{}"
        elif raw[0] == '"':
            text = decode_string(raw)
            arguments = repair_object(text) if text.strip() else "{}"
        if arguments is None:
            self.broken = True
            return
        self._held = [arguments]
        if self.started:
            self._release()

    def _release(self) -> None:
        self._events.append(ToolCallArguments(self._index, "".join(self._held)))
        self._held = []

    def _end(self) -> None:
        if not self.started:
            self.broken = True
            self.done = False
            return
        if self._arguments_key is None:
            self._events.append(ToolCallArguments(self._index, "{}"))
        self._events.append(ToolCallEnd(self._index))
