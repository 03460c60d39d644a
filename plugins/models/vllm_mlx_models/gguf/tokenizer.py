"""tokenizer.json and tokenizer_config.json from a GGUF file's metadata: byte-level BPE and SentencePiece BPE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_mlx_core.api import ModelError, UnsupportedModel

from .header import GGUFHeader
from .pretokenizers import pre_tokenizer_for

_CONTROL, _USER_DEFINED = 3, 4
_ROLES = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}

Json = dict[str, Any]


def tokenizer_files(header: GGUFHeader) -> dict[str, Json]:
    """Return the two files' contents. Raises UnsupportedModel for another kind of tokenizer."""
    tokens = header.tokenizer("tokens")
    if not tokens:
        raise ModelError("The GGUF file holds no vocabulary.")
    types = header.tokenizer("token_type") or [1] * len(tokens)
    special = {
        role: tokens[int(i)]
        for role, key in _ROLES.items()
        if (i := header.tokenizer(key)) is not None and int(i) < len(tokens)
    }
    kind = header.tokenizer("model")
    if kind == "gpt2":
        body = _byte_level(header, tokens)
    elif kind == "llama":
        body = _sentence_piece(header, tokens, special)
    else:
        raise UnsupportedModel(f"GGUF tokenizers of the kind {kind!r} are not supported; gpt2 and llama are.")
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(tokens, types),
        **body,
        "post_processor": _post_processor(header, special, kind),
    }
    config = {
        **special,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(header.need("context_length")),
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}


def chat_template(header: GGUFHeader) -> str:
    """Return the chat template's source, or the empty string."""
    return str(header.fields.get("tokenizer.chat_template") or "")


def merges_by_score(tokens: Sequence[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Return a SentencePiece vocabulary's merges, best score first: every split of a token into two tokens."""
    rank = {token: i for i, token in enumerate(tokens)}
    scored: list[tuple[float, int, int, tuple[str, str]]] = []
    for token, score in zip(tokens, scores, strict=True):
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in rank and right in rank:
                scored.append((-score, rank[left], rank[right], (left, right)))
    # Pieces of one score keep the order the vocabulary has.
    scored.sort(key=lambda item: (item[0], rank["".join(item[3])], item[1], item[2]))
    return [pair for *_, pair in scored]


def _byte_level(header: GGUFHeader, tokens: Sequence[str]) -> Json:
    merges = header.tokenizer("merges")
    if merges is None:
        raise ModelError("The GGUF file holds a byte-level vocabulary but no merges.")
    # Special tokens stay in the vocabulary: it is what gives them their ids.
    vocabulary = {token: i for i, token in enumerate(tokens)}
    pre = pre_tokenizer_for(str(header.tokenizer("pre") or "default"))
    model = _bpe(vocabulary, [merge.split(" ", 1) for merge in merges])
    model["ignore_merges"] = pre.ignore_merges
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "normalizer": pre.normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*pre.splits, byte_level]},
        "decoder": byte_level,
        "model": model,
    }


def _sentence_piece(header: GGUFHeader, tokens: Sequence[str], special: Mapping[str, str]) -> Json:
    scores = header.tokenizer("scores") or [0.0] * len(tokens)
    model = _bpe({token: i for i, token in enumerate(tokens)}, [list(pair) for pair in merges_by_score(tokens, scores)])
    model |= {"unk_token": special.get("unk_token"), "fuse_unk": True, "byte_fallback": True}
    prefix = bool(header.tokenizer("add_space_prefix", True))
    steps: list[Json] = [{"type": "Prepend", "prepend": "▁"}] if prefix else []
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    back: list[Json] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        back.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": back},
        "model": model,
    }


def _bpe(vocabulary: Mapping[str, int], merges: Sequence[Sequence[str]]) -> Json:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": merges,
    }


def _added_tokens(tokens: Sequence[str], types: Sequence[int]) -> list[Json]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": i, "content": tokens[i], **flags, "special": kind == _CONTROL}
        for i, kind in enumerate(types)
        if kind in (_CONTROL, _USER_DEFINED)
    ]


def _post_processor(header: GGUFHeader, special: Mapping[str, str], kind: str) -> Json | None:
    """Return the step that puts special tokens around a text. SentencePiece files begin with one unless they say no."""
    text: Json = {"Sequence": {"id": "A", "type_id": 0}}
    parts, used = [text], {}
    for role, default in (("bos_token", kind == "llama"), ("eos_token", False)):
        token = special.get(role)
        if token is None or not header.tokenizer(f"add_{role}", default):
            continue
        marker: Json = {"SpecialToken": {"id": token, "type_id": 0}}
        parts.insert(0 if role == "bos_token" else len(parts), marker)
        used[token] = {"id": token, "ids": [int(header.tokenizer(_ROLES[role]))], "tokens": [token]}
    if not used:
        return None
    pair = [*parts, {"Sequence": {"id": "B", "type_id": 0}}]
    return {"type": "TemplateProcessing", "single": parts, "pair": pair, "special_tokens": used}
