"""The text half: a tokenizer of bytes, and a chat template that is nothing but the texts, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_mlx_core.api import Chat, InvalidRequest, RenderedPrompt, SamplingParams

END = 256
END_TEXT = "<|end|>"
VOCAB_SIZE = 257


class ByteTokenizer:
    """One token for each byte, and one that ends a turn."""

    vocab_size = VOCAB_SIZE

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the token ids of ``text``; the end token's marker becomes the end token."""
        first, *others = text.split(END_TEXT)
        ids = list(first.encode())
        for other in others:
            ids += [END, *other.encode()]
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ``token_ids``; bytes that are no UTF-8 become replacement characters."""
        return b"".join(map(self.token_bytes, token_ids)).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one token."""
        return END_TEXT.encode() if token_id == END else bytes([token_id])

    def special_token(self, token_id: int) -> str | None:
        """Return the text of the end token, None for bytes."""
        return END_TEXT if token_id == END else None

    def token_id(self, token: str) -> int | None:
        """Return the id of the token whose text is ``token``, or None."""
        ids = self.encode(token)
        return ids[0] if len(ids) == 1 else None


class BigramProcessor:
    """Renders a conversation as its texts, each ended by the end token. Any thread."""

    context_length = 4096
    stop_token_ids = (END,)
    defaults = SamplingParams(temperature=1.0)

    def __init__(self) -> None:
        self.tokenizer = ByteTokenizer()

    def render(self, chat: Chat) -> RenderedPrompt:
        """Join the messages. Raises InvalidRequest for a message that is not text."""
        texts = [_text(message.get("content")) for message in chat.messages]
        return self.tokenize("".join(text + END_TEXT for text in texts))

    def tokenize(self, text: str) -> RenderedPrompt:
        """Tokenise a raw prompt; the model adds no token of its own."""
        return RenderedPrompt(text=text, token_ids=self.tokenizer.encode(text))


def _text(content: Any) -> str:
    """Return a message's text: a string, nothing, or a list of text parts."""
    if isinstance(content, str | None):
        return content or ""
    try:
        return "".join(part["text"] for part in content)
    except (KeyError, TypeError) as error:
        raise InvalidRequest("A bigram model reads only text.", param="messages") from error
