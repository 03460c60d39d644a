"""Model families: how a checkpoint becomes something that can be asked.

A family has two halves, because an engine may live in a process of its own. The *text* half (tokenizer, chat template,
defaults) runs beside the front-ends and imports no MLX; the *compute* half (weights, forward pass) is made and used
only on the engine thread.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from .errors import ModelError
from .messages import Chat, RenderedPrompt, SamplingParams
from .parsing import Tokenizer

if TYPE_CHECKING:
    import mlx.core as mx

Progress = Callable[[str, float | None], None]
"""Called with what is being done and how much of it, 0 to 1 (None: not known). Any thread; must not raise."""


def no_progress(what: str, fraction: float | None = None) -> None:
    """Report nothing."""


class ParserChoice(NamedTuple):
    """Names of the parsers that fit a checkpoint (None: none), and why, for the banner."""

    tool: str | None = None
    reasoning: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """A model on this machine: a folder with a config.json, or a single file. Reading it never loads weights."""

    path: Path
    name: str = ""
    """The reference it was found by (a path, a hub id, a built-in name): the default name to serve it under."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """A whole config for checkpoints that have no config.json."""
    template: str | None = None
    """The source of a chat template that replaces the checkpoint's own."""

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The config.json; empty if there is none. Raises ModelError if it is not a JSON object."""
        if self.overrides:
            return self.overrides
        file = self.path / "config.json"
        if not file.is_file():
            return {}
        try:
            config = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ModelError(f"{file} is not valid JSON: {error}") from error
        if not isinstance(config, dict):
            raise ModelError(f"{file} does not hold a JSON object.")
        return config

    @property
    def model_type(self) -> str:
        """The config's model_type, or the empty string."""
        return str(self.config.get("model_type") or "")

    @cached_property
    def chat_template(self) -> str:
        """The chat template's source; empty if there is none. ``template`` replaces it.

        It comes from chat_template.jinja, tokenizer_config.json or, as models that also see have it,
        chat_template.json. Raises ModelError if the file cannot be understood.
        """
        if self.template is not None:
            return self.template
        file = self.path / "chat_template.jinja"
        if file.is_file():
            try:
                return file.read_text(encoding="utf-8")
            except ValueError as error:
                raise ModelError(f"{file} is not UTF-8 text: {error}") from error
        return _template_in(self.path / "tokenizer_config.json") or _template_in(self.path / "chat_template.json")


def _template_in(file: Path) -> str:
    """Return the chat template that a JSON file holds, or the empty string."""
    if not file.is_file():
        return ""
    try:
        template = json.loads(file.read_text(encoding="utf-8")).get("chat_template") or ""
        if isinstance(template, list):  # several named templates
            named = {entry["name"]: entry["template"] for entry in template}
            template = named.get("tool_use") or named.get("default") or ""
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ModelError(f"{file} is not valid: {error}") from error
    return str(template)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What the operator said about finding and loading a model."""

    revision: str | None = None
    offline: bool = False
    trust_remote_code: bool = False
    download_timeout_s: float = 300.0
    download_retries: int = 3
    dtype: str | None = None
    """float32, float16 or bfloat16; None: as stored, except on a CPU device, where it is float32."""
    chat_template: str | None = None
    """The source of a chat template that replaces the checkpoint's."""
    progress: Progress = no_progress


class TextProcessor(Protocol):
    """The text half of a generative family. Any thread; does not mutate.

    A processor may have ``infill(gap: Infill) -> RenderedPrompt | None``, which writes a gap in the form that the model
    was taught (fill-in-the-middle), or returns None if it was taught none.
    """

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        ...

    @property
    def context_length(self) -> int:
        """Most tokens that prompt and output may have together."""
        ...

    @property
    def stop_token_ids(self) -> Sequence[int]:
        """Tokens that end a turn."""
        ...

    @property
    def defaults(self) -> SamplingParams:
        """The checkpoint's own sampling defaults (generation_config.json)."""
        ...

    def render(self, chat: Chat) -> RenderedPrompt:
        """Apply the chat template and tokenise. Raises InvalidRequest naming the message that cannot be rendered."""
        ...

    def tokenize(self, text: str) -> RenderedPrompt:
        """Tokenise a raw prompt, with the tokenizer's own beginning-of-text token if it adds one."""
        ...


class Generator(Protocol):
    """The compute half of a generative family. Engine thread only.

    ``layers`` in ``forward`` are what ``make_cache`` returned, or what mlx-lm's cache classes made of several such
    lists by ``merge`` (one row each).

    A generator may set ``is_pure = True``: what ``forward`` computes then depends on its arguments and the weights
    only, and it reads what it fetched from a cache under the mask that the cache made. The engine may then capture
    decode steps: record one and replay it (``mx.compile``), without calling ``forward``, if the self-test agrees.
    """

    @property
    def nbytes(self) -> int:
        """Memory held by the weights, in bytes."""
        ...

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        ...

    def make_cache(self) -> list[Any]:
        """Return an empty state for one sequence: one mlx-lm cache object per layer."""
        ...

    def forward(self, tokens: mx.array, layers: list[Any]) -> mx.array:
        """Read ``tokens`` (int32, [rows, length]) and return logits [rows, length, vocab]. Mutates ``layers``."""
        ...


@runtime_checkable
class IdentifiedGenerator(Generator, Protocol):
    """A generator that tells what it computes with, so that a later process can know states of this one again.

    Optional: states of other generators are kept for as long as the process lives.
    """

    @property
    def architecture(self) -> str:
        """What ``forward`` depends on beside the weights: code and configuration. The same in every process."""
        ...

    def weights(self) -> Iterable[tuple[str, mx.array]]:
        """Yield all weights by name, in an order that is the same in every process. Engine thread only."""
        ...


class ModelFamily(ABC):
    """One kind of checkpoint. Made on any thread; importing it may be slow, making it is not.

    Registered under the ``model_type`` it serves, or under any name that ``vllm_mlx_detect_family`` answers with.
    """

    parsers: ClassVar[ParserChoice | None] = None
    """The parsers of every checkpoint of this family; None leaves it to ``vllm_mlx_choose_parsers``."""

    def __init__(self, checkpoint: Checkpoint, options: LoadOptions) -> None:
        self.checkpoint = checkpoint
        self.options = options

    @abstractmethod
    def load_processor(self) -> TextProcessor:
        """Load tokenizer and template. Any thread. Raises ModelError."""

    @abstractmethod
    def load_generator(self) -> Generator:
        """Load the weights. Engine thread. Raises ModelError."""
