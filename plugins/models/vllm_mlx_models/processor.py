"""The text half of a language model: tokenizer, chat template and the checkpoint's own defaults. Imports no MLX."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_mlx_core.api import (
    Chat,
    Checkpoint,
    Infill,
    InvalidRequest,
    LoadOptions,
    RenderedPrompt,
    SamplingParams,
    Tokenizer,
    encode_prompt,
)

from .context_length import context_length
from .generation_defaults import end_token_ids, read_generation_config, sampling_defaults
from .infill import infill_tokens
from .message_ends import message_end_ids
from .named_templates import TemplateSources, template_sources
from .rendering import ChatRenderer
from .template import ChatTemplate
from .tokenizer_loading import LoadedTokenizer, load_tokenizer

_CONTENT = "\ue000content\ue000"


class CheckpointProcessor:
    """The text half of a checkpoint folder. Making it reads files and raises ModelError; using it, any thread."""

    def __init__(self, checkpoint: Checkpoint, options: LoadOptions) -> None:
        loaded = load_tokenizer(checkpoint.path, trust_remote_code=options.trust_remote_code)
        given = options.chat_template
        sources = template_sources(checkpoint) if given is None else TemplateSources(given, given)
        template = ChatTemplate(sources.plain, loaded.special_tokens) if sources.plain else None
        advice = read_generation_config(checkpoint.path)
        self._loaded = loaded
        self._renderer = ChatRenderer(template) if template else None
        self._tool_renderer = self._renderer
        if sources.with_tools != sources.plain:
            self._tool_renderer = ChatRenderer(ChatTemplate(sources.with_tools, loaded.special_tokens))
        self._message_ends = frozenset[int]()
        if self._renderer is not None and self._tool_renderer is not None:
            self._message_ends = message_end_ids(self._renderer, self._tool_renderer, loaded.tokenizer)
        self._context_length = context_length(checkpoint.config, loaded.max_length)
        self._defaults = sampling_defaults(advice)
        ends = [*end_token_ids(advice, checkpoint.config), *_special_ends(loaded), *_turn_ends(loaded, template)]
        self._stop_token_ids = tuple(dict.fromkeys(i for i in ends if i < loaded.tokenizer.vocab_size))

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return self._loaded.tokenizer

    @property
    def context_length(self) -> int:
        """Most tokens that prompt and output may have together."""
        return self._context_length

    @property
    def stop_token_ids(self) -> Sequence[int]:
        """Tokens that end a turn: those of both configs, the tokenizer's, and the template's."""
        return self._stop_token_ids

    @property
    def defaults(self) -> SamplingParams:
        """The checkpoint's own sampling defaults."""
        return self._defaults

    def render(self, chat: Chat) -> RenderedPrompt:
        """Apply the chat template and tokenise. Raises InvalidRequest naming the message that cannot be rendered."""
        renderer = self._tool_renderer if chat.tools else self._renderer
        if renderer is None:
            raise InvalidRequest(
                "This model has no chat template, so it cannot chat. Send a text prompt to the completions route, "
                "or start the server with --chat-template.",
                code="no_chat_template",
            )
        text = renderer.render(chat)
        return self._prompt(text, encode_prompt(self.tokenizer, text, context_length=self.context_length))

    def tokenize(self, text: str) -> RenderedPrompt:
        """Tokenise a raw prompt, with the tokenizer's own beginning-of-text token if it adds one."""
        ids = encode_prompt(self.tokenizer, text, context_length=self.context_length, add_special_tokens=True)
        return self._prompt(text, ids)

    def _prompt(self, text: str, token_ids: Sequence[int]) -> RenderedPrompt:
        """Say where messages end. Text that only looks like an end costs a needless snapshot and nothing else."""
        ends = self._message_ends
        boundaries = [i for i, token_id in enumerate(token_ids, 1) if token_id in ends]
        return RenderedPrompt(text=text, token_ids=token_ids, boundaries=boundaries)

    def infill(self, gap: Infill) -> RenderedPrompt | None:
        """Write a gap in the form the vocabulary has for it; None if it has none."""
        token_ids = infill_tokens(self.tokenizer, gap, context_length=self.context_length)
        return None if token_ids is None else RenderedPrompt(text="", token_ids=token_ids)


def _special_ends(loaded: LoadedTokenizer) -> list[int]:
    end = loaded.special_tokens.get("eos_token")
    token_id = loaded.tokenizer.token_id(end) if end else None
    return [] if token_id is None else [token_id]


def _turn_ends(loaded: LoadedTokenizer, template: ChatTemplate | None) -> list[int]:
    """Return the token that the template puts right after an answer, found by rendering one.

    Fine-tunes often change the template and forget the configs. Harmony-style templates are left alone: in them what
    follows a message ends that message, not the turn.
    """
    if template is None or template.mentions("<|channel|>"):
        return []
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _CONTENT}]
    try:
        text = template.render({"messages": messages, "tools": None, "add_generation_prompt": False})
    except Exception:  # a template that wants more than this simply tells nothing here
        return []
    _, found, rest = text.rpartition(_CONTENT)
    ids = loaded.tokenizer.encode(rest.lstrip()) if found else []
    return ids[:1] if ids and loaded.tokenizer.is_added(ids[0]) else []
