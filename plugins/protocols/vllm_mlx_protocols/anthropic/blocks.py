"""The texts in a message's blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from vllm_mlx_core.api import InvalidRequest
from vllm_mlx_protocols.media import left_out

from .schema import Block, DocumentSource, ResultBlock, SearchResultBlock, TextBlock

SEPARATOR = "\n\n"
"""What stands between two blocks: each is a paragraph of its own."""
_BILLING = re.compile(r"\s*x-anthropic-billing-header:[^\n]*\n*")


def join(texts: Iterable[str]) -> str:
    """Return the texts as one; empty ones leave no trace."""
    return SEPARATOR.join(text for text in texts if text)


def system_text(system: str | Sequence[TextBlock] | None) -> str:
    """Return the system prompt, empty if there is none. Raises InvalidRequest naming the block.

    Coding agents put a line for Anthropic's accounts before it that changes with each request. It is dropped: nothing
    of the prompt could be taken from the prefix cache otherwise.
    """
    if system is None:
        return ""
    if isinstance(system, str):
        return _BILLING.sub("", system, count=1) if _BILLING.match(system) else system
    texts = [plain_text(block, f"system[{index}]") for index, block in enumerate(system)]
    if texts and (line := _BILLING.match(texts[0])):
        texts[0] = texts[0][line.end() :]
    return join(texts)


def plain_text(block: TextBlock | ResultBlock, where: str) -> str:
    """Return the text of a block that must be one. Raises InvalidRequest naming it."""
    if block.type != "text":
        raise InvalidRequest(f"{where}.type: only text can stand here.", param=f"{where}.type")
    if block.text is None:
        raise InvalidRequest(f"{where}.text is required.", param=f"{where}.text")
    return block.text


def user_text(block: Block, where: str) -> str:
    """Return the text of a block in a user's message. Raises InvalidRequest naming what cannot be read."""
    if block.type == "text":
        return plain_text(block, where)
    text = _readable(block)
    if text is not None:
        return text
    param = f"{where}.source" if block.type == "document" else f"{where}.type"
    if block.type in ("image", "document"):
        raise InvalidRequest(f"{param}: this model reads text only, not this {block.type}.", param=param)
    raise InvalidRequest(f"{param}: a {block.type[:64]} block cannot stand here.", param=param)


def result_text(block: Block, where: str) -> str:
    """Return the text of a tool's result: what a text model cannot read becomes a short note. Raises InvalidRequest."""
    content = block.content or ""
    if not isinstance(content, str):
        content = join(_result_part(part, f"{where}.content[{index}]") for index, part in enumerate(content))
    if block.is_error:
        return f"Error: {content}" if content else "Error"
    return content


def _result_part(part: SearchResultBlock, where: str) -> str:
    if part.type == "text":
        return plain_text(part, where)
    text = _readable(part)
    return left_out(part.type) if text is None else text


def _readable(block: Block | SearchResultBlock) -> str | None:
    """Return the text of a document or a search result, None if it has no text."""
    if block.type == "search_result" and not isinstance(block.content, str):
        address = block.source if isinstance(block.source, str) else ""
        return join([block.title or "", address, *(part.text or "" for part in block.content or ())])
    if block.type == "document" and isinstance(block.source, DocumentSource):
        text = _document_text(block.source)
        return None if text is None else join([block.title or "", block.context or "", text])
    return None


def _document_text(source: DocumentSource) -> str | None:
    if source.type == "text":
        return source.data
    if source.type != "content" or source.content is None:
        return None
    if isinstance(source.content, str):
        return source.content
    if any(part.type != "text" for part in source.content):
        return None
    return join(part.text or "" for part in source.content)
