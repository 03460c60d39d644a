"""How byte-level vocabularies cut a text before merging; a GGUF file only names the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm_mlx_core.api import UnsupportedModel

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_SINGLE_DIGITS = {"type": "Digits", "individual_digits": True}


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """The steps before byte-level BPE, in tokenizer.json's terms. ``ignore_merges`` takes whole words as they are."""

    splits: list[dict[str, Any]]
    normalizer: dict[str, Any] | None = None
    ignore_merges: bool = False


_GPT2_WAY = PreTokenizer([_split(_GPT2)])
_DIGITS_WAY = PreTokenizer([_SINGLE_DIGITS, _split(_GPT2)])
_QWEN_WAY = PreTokenizer([_split(_WORDS % "")], normalizer={"type": "NFC"})
_LLAMA3_WAY = PreTokenizer([_split(_WORDS % "{1,3}")], ignore_merges=True)
_NAMED = {
    "default": _GPT2_WAY,
    "gpt-2": _GPT2_WAY,
    "smollm": _DIGITS_WAY,
    "starcoder": _DIGITS_WAY,
    "qwen2": _QWEN_WAY,
    "deepseek-r1-qwen": _QWEN_WAY,
    "llama-bpe": _LLAMA3_WAY,
    "llama3": _LLAMA3_WAY,
}


def pre_tokenizer_for(name: str) -> PreTokenizer:
    """Return the steps that ``name`` stands for. Raises UnsupportedModel: a wrong guess would garble every answer."""
    try:
        return _NAMED[name]
    except KeyError:
        raise UnsupportedModel(
            f"The GGUF file's pre-tokenizer {name!r} is not supported; {', '.join(_NAMED)} are."
        ) from None
