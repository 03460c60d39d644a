"""From Anthropic's messages, whose blocks hold everything, to the plain dictionaries that a chat template reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vllm_mlx_core.api import InvalidRequest

from .blocks import join, plain_text, result_text, system_text, user_text
from .schema import Block, Message, PromptFields


def to_messages(body: PromptFields) -> list[dict[str, Any]]:
    """Return the messages with the keys of ``api.Chat``, the system prompt first. Raises InvalidRequest naming a field.

    A last turn of the assistant is the beginning of the answer. Without any text there is nothing to continue, and it
    is left out.
    """
    result: list[dict[str, Any]] = []
    if system := system_text(body.system):
        result.append({"role": "system", "content": system})
    for index, message in enumerate(body.messages):
        result += _turn(message, f"messages[{index}]")
    while result and result[-1]["role"] == "assistant" and not result[-1]["content"]:
        if "tool_calls" in result[-1]:
            break
        result.pop()
    if not result:
        raise InvalidRequest("messages: there is nothing to answer.", param="messages")
    if "tool_calls" in result[-1]:
        where = f"messages[{len(body.messages) - 1}].content"
        raise InvalidRequest(f"{where}: tool_use without a tool_result in the next message.", param=where)
    return result


def _turn(message: Message, where: str) -> Iterator[dict[str, Any]]:
    if isinstance(message.content, str):
        yield {"role": message.role, "content": message.content}
        return
    blocks = [(block, f"{where}.content[{index}]") for index, block in enumerate(message.content)]
    if message.role == "system":
        yield {"role": "system", "content": join(plain_text(block, at) for block, at in blocks)}
    elif message.role == "assistant":
        yield _assistant(blocks)
    else:
        yield from _user(blocks)


def _user(blocks: Sequence[tuple[Block, str]]) -> Iterator[dict[str, Any]]:
    """Yield the results of calls, which must follow the calls at once, and then what the user says."""
    said = []
    for block, where in blocks:
        if block.type != "tool_result":
            said.append(user_text(block, where))
            continue
        if block.tool_use_id is None:
            raise InvalidRequest(f"{where}.tool_use_id is required.", param=f"{where}.tool_use_id")
        yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": result_text(block, where)}
    text = join(said)
    if text or all(block.type != "tool_result" for block, _ in blocks):
        yield {"role": "user", "content": text}


def _assistant(blocks: Sequence[tuple[Block, str]]) -> dict[str, Any]:
    """Return the turn as the model wrote it: its texts with nothing between, its thoughts, its calls."""
    texts, thoughts, calls = [], [], []
    for block, where in blocks:
        match block.type:
            case "text":
                texts.append(plain_text(block, where))
            case "thinking":
                thoughts.append(block.thinking or "")
            case "redacted_thinking":  # nobody but its maker can read it
                continue
            case "tool_use":
                calls.append(_call(block, where))
            case _:
                param = f"{where}.type"
                raise InvalidRequest(f"{param}: an assistant's {block.type[:64]} cannot be read.", param=param)
    turn: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if thought := "".join(thoughts):
        turn["reasoning_content"] = thought
    if calls:
        turn["tool_calls"] = calls
    return turn


def _call(block: Block, where: str) -> dict[str, Any]:
    for field in ("id", "name"):
        if getattr(block, field) is None:
            raise InvalidRequest(f"{where}.{field} is required.", param=f"{where}.{field}")
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": block.input or {}}}
