"""One call written as a JSON object: ``{"name": …, "arguments": {…}}``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vllm_mlx_parsers.json_scan import JSONObjectScanner, JSONScanner, as_object, decode_string

_WRAPPER = "function"
_HARMLESS = frozenset({"id", "type"})
"""Members that a call may have besides, even where nothing else tells that it is one."""


class JSONCall(JSONObjectScanner):
    """Reads one call, and hands its arguments over while they are generated.

    Name and arguments may come in either order, and other members are ignored. Of several members that can hold the
    arguments, the first counts. Missing, null and empty arguments are ``{}``; arguments that are themselves JSON
    inside a string are decoded. Anything but an object is broken, and so is an object without a name. The member
    ``function`` may hold the name, or both as an object of its own, as OpenAI's protocol has it.

    With ``declared`` only what can be nothing else is a call, and all else is broken as soon as it shows: the name must
    be one for which ``declared`` is true, arguments must be there, and other members must not. The name is then given
    only once the arguments have begun.
    """

    def __init__(
        self,
        *,
        name_key: str = "name",
        argument_keys: Sequence[str] = ("arguments", "parameters", "args", "input"),
        id_key: str | None = None,
        declared: Callable[[str], bool] | None = None,
    ) -> None:
        super().__init__()
        self.name: str | None = None
        """The name, once it is known; to be taken, and set to None, by whoever reads the call."""
        self.id = ""
        """The id that the call itself gives, as far as known when ``name`` is set."""
        self._name_key = name_key
        self._argument_keys = argument_keys
        self._id_key = id_key
        self._declared = declared
        self._wrapped: list[str] | None = []  # the member "function"; None where there can be none
        self._named = self._started = False
        self._word: list[str] = []  # the name or the id, while it is read
        self._full_name = ""
        self._arguments_key: str | None = None
        self.arguments_done = False
        """Whether the arguments are complete."""
        self._streams = False  # the arguments are an object, to be passed on as it comes
        self._held: list[str] = []  # arguments that were not taken yet

    @property
    def streaming(self) -> JSONScanner | None:
        """What reads the arguments, once they are passed on as they come; all that it has read was taken.

        It may be fed directly until it is done.
        """
        streams = self._started and self._streams and not self.arguments_done and not self.scanner.done
        return self.scanner if streams else None

    def take(self) -> str:
        """Return the arguments, JSON text, that became certain since the last call. Mutates."""
        if not self._held or not self._started or not (self._streams or self.arguments_done):
            return ""
        json = "".join(self._held)
        self._held.clear()
        return json

    def feed(self, text: str, pos: int = 0) -> int:
        """Read on; once ``done`` is true all arguments can be taken. Mutates."""
        pos = super().feed(text, pos)
        if self.done:
            self._complete()
        return pos

    def close(self) -> bool:
        """Add the closing brackets that are missing; see ``JSONScanner.close``. Mutates."""
        if super().close():
            self._complete()
        return self.done

    def _complete(self) -> None:
        if not self._started:
            if not self._named or self._declared is not None:
                self.done = False
                self.refuse()
            else:
                self._start()
        if self.done and self._arguments_key is None:
            self._arguments_key, self.arguments_done = self._argument_keys[0], True
            self._held = ["{}"]

    def value(self, key: str, json: str) -> None:
        """Take a piece of the name, of the id or of the arguments."""
        if key == self._arguments_key:
            if not self.arguments_done:
                self._held.append(json)
        elif (key == self._name_key and not self._named) or (key == self._id_key and not self.id):
            self._word.append(json)
        elif self._arguments_key is None and key in self._argument_keys:
            self._arguments_key = key
            self._streams = json[0] == "{"
            self._held.append(json)
            self._start_if_ready()
        elif key == _WRAPPER and self._wrapped is not None and not self._named:
            self._wrapped.append(json)
        elif self._declared is not None and key not in _HARMLESS:
            self.refuse()

    def member(self, key: str) -> None:
        """Start the call once its name is complete, and decode arguments that came in a string."""
        if key == self._name_key and not self._named:
            self._take_name(self._take_word())
        elif key == self._id_key and not self.id:
            self.id = self._take_word()
        elif key == self._arguments_key and not self.arguments_done:
            self.arguments_done = True
            if not self._streams:
                self._decode_arguments()
        elif key == _WRAPPER and self._wrapped and not self._named:
            self._unwrap("".join(self._wrapped))

    def _take_name(self, name: str) -> None:
        if not name or (self._declared is not None and not self._declared(name)):
            self.refuse()
        self._full_name = name
        self._named = True
        self._start_if_ready()

    def _unwrap(self, json: str) -> None:
        """Take the name, and perhaps the arguments, from a member that is complete."""
        self._wrapped = None
        if json.startswith('"'):
            self._take_name(decode_string(json))
            return
        call = JSONCall(name_key=self._name_key, argument_keys=self._argument_keys, declared=self._declared)
        call._wrapped = None
        call.feed(json)
        if not call.done:
            self.refuse()
            return
        if self._arguments_key is None:
            self._arguments_key, self.arguments_done, self._held = _WRAPPER, True, [call.take()]
        self._take_name(call._full_name)

    def _take_word(self) -> str:
        json = "".join(self._word)
        self._word.clear()
        return decode_string(json) if json.startswith('"') else ""

    def _start_if_ready(self) -> None:
        if not self._named or self._started or self.broken:
            return
        if self._declared is not None and self._arguments_key is None:
            return
        # An id may still follow the name; where there can be one, only the arguments tell that it does not.
        if self._id_key is None or self.id or self._arguments_key is not None:
            self._start()

    def _start(self) -> None:
        self._started = True
        self.name = self._full_name

    def _decode_arguments(self) -> None:
        arguments = as_object("".join(self._held))
        if arguments is None:
            self._held.clear()
            self.refuse()
            return
        self._held = [arguments]
