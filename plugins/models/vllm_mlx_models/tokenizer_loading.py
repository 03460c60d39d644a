"""Loading a checkpoint's tokenizer, without transformers where its files say all there is to say.

Importing transformers takes most of a second, and building one of its tokenizers as long again. A ``tokenizer.json``
whose class adds nothing to it needs neither. Every other checkpoint goes through ``AutoTokenizer``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import tokenizers

from vllm_mlx_core.api import ModelError

from .tokenizer import FastTokenizer, SlowTokenizer

AnyTokenizer: TypeAlias = FastTokenizer | SlowTokenizer

PLAIN_CLASSES = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend", "Qwen2Tokenizer", "Qwen2TokenizerFast"})
"""Tokenizer classes that are exactly what tokenizer.json says."""

_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json")
"""Files of which a tokenizer without code of its own has at least one."""
_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """A tokenizer and what its files say beside the vocabulary: special tokens by role, the longest input."""

    tokenizer: AnyTokenizer
    special_tokens: Mapping[str, str]
    max_length: int | None = None


def load_tokenizer(folder: Path, *, trust_remote_code: bool = False) -> LoadedTokenizer:
    """Load the tokenizer of a checkpoint folder. Raises ModelError if there is none or it cannot be read."""
    config = _read_object(folder / "tokenizer_config.json")
    try:
        loaded = _load_plain(folder, config)
        return loaded if loaded is not None else _load_with_transformers(folder, config, trust_remote_code)
    except ModelError:
        raise
    except Exception as error:  # the two libraries raise whatever a broken file provokes
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ModelError(f"The tokenizer in {folder} cannot be loaded: {reason}") from error


def prepare_imports(folder: Path) -> None:
    """Import transformers if this checkpoint's tokenizer needs it. Call it before another thread imports mlx-lm.

    Both halves of a model load at once, and mlx-lm imports transformers too. Its modules import one another in circles,
    so two threads that import it together may each find the other's half-made modules.
    """
    try:
        plain = _is_plain(folder, _read_object(folder / "tokenizer_config.json"))
    except ModelError:  # which loading will report
        return
    if not plain:
        _import_transformers()


def _is_plain(folder: Path, config: Mapping[str, Any]) -> bool:
    has_file = (folder / "tokenizer.json").is_file()
    return has_file and config.get("tokenizer_class") in PLAIN_CLASSES and "auto_map" not in config


def _import_transformers() -> Any:
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # or it laments that there is no PyTorch
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: F401 - both are what mlx-lm imports

    return AutoTokenizer


def _load_plain(folder: Path, config: Mapping[str, Any]) -> LoadedTokenizer | None:
    """Return the tokenizer that tokenizer.json describes, or None if its class might change it."""
    file = folder / "tokenizer.json"
    if not _is_plain(folder, config):
        return None
    backend = tokenizers.Tokenizer.from_file(str(file))
    roles = {**_read_object(folder / "special_tokens_map.json"), **config}
    special = {role: text for role in _ROLES if (text := _token_text(roles.get(role)))}
    if not _add_tokens(backend, config, special):
        return None
    return LoadedTokenizer(FastTokenizer(backend), special, _max_length(config))


def _add_tokens(backend: tokenizers.Tokenizer, config: Mapping[str, Any], special: Mapping[str, str]) -> bool:
    """Add what tokenizer_config.json has beyond tokenizer.json. False: the ids would differ. Mutates the backend."""
    present = backend.get_added_tokens_decoder()
    for token_id, entry in sorted(config.get("added_tokens_decoder", {}).items(), key=lambda item: int(item[0])):
        token = _added_token(entry)
        if repr(present.get(int(token_id))) != repr(token):
            (backend.add_special_tokens if token.special else backend.add_tokens)([token])
            if backend.token_to_id(token.content) != int(token_id):
                return False
    more = config.get("extra_special_tokens") or config.get("additional_special_tokens") or ()
    more = more.values() if isinstance(more, Mapping) else more
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    for text in (*special.values(), *filter(None, map(_token_text, more))):
        if text not in known:
            backend.add_special_tokens([text])
    return True


def _load_with_transformers(folder: Path, config: Mapping[str, Any], trust_remote_code: bool) -> LoadedTokenizer:
    if not trust_remote_code and "auto_map" in config and not (folder / "tokenizer.json").is_file():
        raise ModelError(
            f"The tokenizer in {folder} is code that comes with the model. --trust-remote-code lets it run."
        )
    if not any((folder / name).is_file() for name in _VOCABULARIES) and "auto_map" not in config:
        raise ModelError(f"There is no tokenizer in {folder}: none of {', '.join(_VOCABULARIES)}.")
    backend = _import_transformers().from_pretrained(folder, trust_remote_code=trust_remote_code, local_files_only=True)
    tokenizer: AnyTokenizer
    if getattr(backend, "is_fast", False):
        tokenizer = FastTokenizer(backend.backend_tokenizer)
    else:
        tokenizer = SlowTokenizer(backend)
    special = {role: str(text) for role in _ROLES if (text := getattr(backend, role, None))}
    return LoadedTokenizer(tokenizer, special, _max_length(config))


def _max_length(config: Mapping[str, Any]) -> int | None:
    length = config.get("model_max_length")
    return int(length) if isinstance(length, int | float) and 0 < length < 1 << 31 else None  # 1e30 means no limit


def _token_text(token: Any) -> str | None:
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) and token else None


def _added_token(entry: Mapping[str, Any]) -> tokenizers.AddedToken:
    flags = {
        name: bool(entry.get(name, False)) for name in ("single_word", "lstrip", "rstrip", "normalized", "special")
    }
    return tokenizers.AddedToken(str(entry["content"]), **flags)


def _read_object(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{file} does not hold a JSON object.")
    return content
