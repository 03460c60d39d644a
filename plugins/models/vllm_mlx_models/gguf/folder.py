"""The cached folder of a GGUF file: where it is, what is in it, and when it is made anew."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_mlx_core.api import Checkpoint, ModelError, Progress
from vllm_mlx_models.local import GGUF_RECORD
from vllm_mlx_models.paths import atomic_file, atomic_folder, cache_dir

from .config import generation_config, model_config
from .header import check_types, read_header
from .tokenizer import chat_template, tokenizer_files

_FORMAT = 2
"""Raised when the conversion changes, so that folders of an older one are not used."""

_WEIGHTS = "model.safetensors"


def gguf_checkpoint(
    file: Path,
    name: str = "",
    *,
    key: str | None = None,
    dequantize: bool = False,
    sampling: Mapping[str, float] | None = None,
) -> Checkpoint:
    """Return the folder made from ``file``, all but its weights; makes it if need be. Any thread, no MLX.

    ``key`` tells the file's contents apart from others'; by default its path, size and time of change do.
    ``dequantize`` will write the weights as float32. ``sampling`` are defaults that win over the file's. Raises
    ModelError for a broken file and UnsupportedModel for a layout or quantisation that cannot be used.
    """
    folder = converted_folder(file.stem, key or _identity(file))
    record = _record(file, dequantize)
    if not (folder / GGUF_RECORD).is_file():
        header = read_header(file)
        check_types(header, file)
        contents: dict[str, Any] = {
            "config.json": model_config(header),
            "generation_config.json": generation_config(header) | dict(sampling or {}),
            **tokenizer_files(header),
            GGUF_RECORD: record,
        }
        with atomic_folder(folder) as scratch:
            for filename, content in contents.items():
                _write_json(scratch / filename, content)
            if template := chat_template(header):
                (scratch / "chat_template.jinja").write_text(template, encoding="utf-8")
    elif not has_weights(folder) and _read_json(folder / GGUF_RECORD) != record:
        # A start that was stopped before it converted had the same contents from another place.
        with atomic_file(folder / GGUF_RECORD) as scratch:
            _write_json(scratch, record)
    return Checkpoint(path=folder, name=name or file.stem)


def converted_folder(stem: str, key: str) -> Path:
    """Return where the folder for a file of this name and identity is, or will be."""
    return cache_dir() / "gguf" / f"{stem}-{key}-v{_FORMAT}"


def has_weights(folder: Path) -> bool:
    """Return whether the folder's weights were written."""
    return (folder / _WEIGHTS).is_file()


def ensure_weights(folder: Path, progress: Progress) -> None:
    """Write the folder's weights, if that was not done yet. Engine thread. Raises ModelError."""
    if has_weights(folder):
        return
    from .weights import write_weights

    record = _read_json(folder / GGUF_RECORD)
    source = Path(record["file"])
    if not source.is_file():
        raise ModelError(f"{source} is gone; its weights were not converted yet.")
    if source.stat().st_size != record["size"] or source.stat().st_mtime_ns != record["mtime_ns"]:
        raise ModelError(f"{source} has changed since it was looked at. Start again.")
    progress(f"converting {source.name}", None)
    config = _read_json(folder / "config.json")
    with atomic_file(folder / _WEIGHTS) as scratch:
        added = write_weights(source, config, scratch, dequantize=record["dequantize"])
        # The config first: weights without their description would be read wrongly, the reverse is made again.
        with atomic_file(folder / "config.json") as new_config:
            _write_json(new_config, {**config, **added})
    progress(f"converting {source.name}", 1.0)


def _identity(file: Path) -> str:
    stat = file.stat()
    text = f"{file.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _record(file: Path, dequantize: bool) -> dict[str, Any]:
    stat = file.stat()
    return {
        "file": str(file.resolve()),
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "dequantize": dequantize,
    }


def _read_json(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
