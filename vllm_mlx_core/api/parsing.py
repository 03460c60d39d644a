"""The two parser interfaces. Parsers are plain Python: they import neither MLX nor the web stack."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from .events import Chunk, ReasoningEvent, ToolEvent

E = TypeVar("E")


class Tokenizer(Protocol):
    """What parsers and pipelines may ask of a tokenizer. Every method may be called from any thread."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids, added tokens included."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the token ids of ``text``; markers of special tokens in it become those tokens."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ``token_ids``, special tokens included."""
        ...

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes one token adds to a text, or None if that depends on its neighbours.

        Bytes that were returned once never change: they are remembered.
        """
        ...

    def special_token(self, token_id: int) -> str | None:
        """Return the text of a special token, or None for an ordinary one."""
        ...

    def token_id(self, token: str) -> int | None:
        """Return the id of the token whose text is exactly ``token``, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the client declared. ``parameters`` is a JSON Schema object."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ParserContext:
    """What a parser learns when a completion starts.

    ``tools`` are those the model was offered (none if the client forbade calls). ``thinking_open`` says that the
    rendered prompt ends inside a reasoning block, ``thinking_off`` that it ends with a closed, empty one.
    """

    tokenizer: Tokenizer | None = None
    tools: Sequence[Tool] = ()
    thinking_open: bool = False
    thinking_off: bool = False

    def declares(self, name: str) -> bool:
        """Return whether the client declared a tool called ``name``."""
        return any(tool.name == name for tool in self.tools)


class StreamParser(ABC, Generic[E]):
    """One completion, fed in pieces, on the event-loop thread. A new instance serves each completion.

    Wherever the text is cut, the joined events must be the same. ``feed`` and ``finish`` mutate the parser and must
    not raise on any input.
    """

    special_tokens: ClassVar[tuple[str, ...]] = ()
    """Special tokens whose text this parser must see; the detokenizer drops all others."""
    families: ClassVar[str] = ""
    """The models that write this format, for the documentation."""
    sample: ClassVar[str] = ""
    """A completion in this format, for the documentation and for trying the parser out."""

    def __init__(self, context: ParserContext) -> None:
        self.context = context

    @abstractmethod
    def feed(self, chunk: Chunk) -> Iterable[E]:
        """Take the next chunk and return the events that are now certain."""

    @abstractmethod
    def finish(self) -> Iterable[E]:
        """Return the events for whatever was held back. Called once, after the last ``feed``."""

    def parse(self, text: str) -> Iterator[E]:
        """Parse a whole completion: the streaming path, fed once."""
        yield from self.feed(Chunk(text))
        yield from self.finish()


class ReasoningParser(StreamParser[ReasoningEvent]):
    """Splits a completion into thinking and answer. Runs before the tool parser, which sees the answer only.

    ``start`` and ``end`` are the markers around the thinking.
    """

    start: ClassVar[str] = ""
    end: ClassVar[str] = ""

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self.thinking = context.thinking_open
        """Whether what comes next belongs to the thinking. A parser keeps it true to what it has read."""

    @classmethod
    def thinking_in_prompt(cls, prompt: str) -> tuple[bool, bool]:
        """Return whether a rendered prompt leaves thinking open, and whether it switches it off. Pure.

        Only the end of the prompt counts, because earlier turns may hold thinking, and users may write its markers:
        open if the prompt ends with ``start``, off if it ends with an empty block. White space between and after the
        markers is ignored. Override it for a format that says so in another way.
        """
        text = prompt.rstrip()
        if not cls.start:
            return False, False
        if text.endswith(cls.start):
            return True, False
        return False, bool(cls.end) and text.endswith(cls.end) and text[: -len(cls.end)].rstrip().endswith(cls.start)


class ToolParser(StreamParser[ToolEvent]):
    """Splits an answer into text and tool calls."""

    stop_tokens: ClassVar[tuple[str, ...]] = ()
    """Special tokens that end a completion in this format, beside those the checkpoint names.

    One that is also among ``special_tokens`` is fed to the parser before ``finish``: so it can tell a call that the
    model ended from one that was cut off.
    """
    surroundings: ClassVar[str] = ""
    """What becomes of the text around calls, for the documentation."""
