"""The scripted family: it answers with exactly the text of the last user message. See ``scripted`` for how to use it.

This is its text half; ``_scripted_model`` is the compute half. A rendered conversation is the messages' own texts
between special tokens: ``<|user|>`` opens what may be a script (a tool result too, if results are to be echoed),
``<|assistant|>`` an answer that ``<|end|>`` closes, ``<|message|>`` anything else. Answers of earlier turns come out
token by token as they were generated, so a conversation that goes on shares its prefix with the turn before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_mlx_core.api import (
    Chat,
    Generator,
    InvalidRequest,
    ModelFamily,
    RenderedPrompt,
    SamplingParams,
    TextProcessor,
)

from ._scripted_tokenizer import ScriptedTokenizer, Special

CONTEXT_LENGTH = 131_072
_DIRECTIVE = re.compile(r"#(?:chunk=(?P<width>[1-9]\d*)|(?P<think>open-think)|(?P<echo>echo-results))[ \t]*(?:\r?\n|$)")


@dataclass(frozen=True, slots=True)
class Script:
    """A user message without its directive lines, and what those asked for."""

    text: str
    width: int = 1
    open_think: bool = False
    echo_results: bool = False

    @classmethod
    def read(cls, content: str) -> Script:
        """Take the leading directive lines off ``content``; a line that is no directive is text."""
        width, open_think, echo_results = 1, False, False
        while directive := _DIRECTIVE.match(content):
            width = int(directive["width"] or width)
            open_think = open_think or directive["think"] is not None
            echo_results = echo_results or directive["echo"] is not None
            content = content[directive.end() :]
        return cls(content, width, open_think, echo_results)


class ScriptedProcessor:
    """Renders conversations and raw prompts for the scripted model. Any thread."""

    def __init__(self) -> None:
        self._tokenizer = ScriptedTokenizer()

    @property
    def tokenizer(self) -> ScriptedTokenizer:
        """The tokenizer."""
        return self._tokenizer

    @property
    def context_length(self) -> int:
        """Most tokens that prompt and output may have together."""
        return CONTEXT_LENGTH

    @property
    def stop_token_ids(self) -> Sequence[int]:
        """The end token."""
        return (int(Special.END),)

    @property
    def defaults(self) -> SamplingParams:
        """Nothing: the script is followed under any sampling."""
        return SamplingParams()

    def render(self, chat: Chat) -> RenderedPrompt:
        """Render a conversation; tools and template variables change nothing.

        Raises InvalidRequest naming the message that is not text.
        """
        ids: list[int] = []
        script = Script("")
        for index, message in enumerate(chat.messages):
            content = _text(message.get("content"), f"messages[{index}].content")
            role = message.get("role")
            if role == "user":
                script = Script.read(content)
                ids += [Special.USER, *self._tokenizer.split(script.text, script.width)]
            elif role == "assistant":
                ids += [Special.ASSISTANT, *self._tokenizer.split(content, script.width)]
                if not (chat.continue_final_message and index == len(chat.messages) - 1):
                    ids.append(Special.END)
            elif role == "tool" and script.echo_results:
                ids += [Special.USER, *self._tokenizer.split(content, script.width)]
            else:
                ids += [Special.MESSAGE, *self._tokenizer.split(content)]
        if chat.add_generation_prompt and not chat.continue_final_message:
            ids += [Special.ASSISTANT, Special.THINK] if script.open_think else [Special.ASSISTANT]
        return self._rendered(ids)

    def tokenize(self, text: str) -> RenderedPrompt:
        """Make all of ``text`` the script, a character a token."""
        return self._rendered([Special.USER, *self._tokenizer.split(text), Special.ASSISTANT])

    def _rendered(self, ids: Sequence[int]) -> RenderedPrompt:
        return RenderedPrompt(text=self._tokenizer.decode(ids), token_ids=[int(token_id) for token_id in ids])


def _text(content: Any, where: str) -> str:
    """Return the text of a message's content: a string, nothing, or a list of text parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        raise InvalidRequest(f"{where} must be a string or a list of parts.", param="messages")
    texts = []
    for number, part in enumerate(content):
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str):
            raise InvalidRequest(f"{where}[{number}] is not text; this model reads nothing else.", param="messages")
        texts.append(text)
    return "".join(texts)


class ScriptedFamily(ModelFamily):
    """Serves the built-in checkpoint ``scripted``. Needs no files."""

    def load_processor(self) -> TextProcessor:
        """Return a processor with a vocabulary of its own."""
        return ScriptedProcessor()

    def load_generator(self) -> Generator:
        """Return the model. Engine thread: this imports MLX."""
        from ._scripted_model import ScriptedModel

        return ScriptedModel()
