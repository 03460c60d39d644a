"""A GGUF file's metadata: typed access, tensor names and quantisations, without reading any weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_mlx_core.api import ModelError, UnsupportedModel

NATIVE_TYPES = frozenset({"F32", "F16", "Q4_0", "Q4_1", "Q8_0"})
"""What MLX keeps as it is stored."""

HALF_TYPES = frozenset({"BF16", "Q6_K"})
"""What MLX reads as float16: exact to its precision, but larger than in the file."""


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """What the file says of itself. ``fields`` are its metadata, ``tensors`` each tensor's name and type.

    ``rope_factor`` is how far the slowest rotary frequencies are stretched, in files that store them ready-made.
    """

    fields: Mapping[str, Any]
    tensors: Mapping[str, str]
    rope_factor: float | None = None

    @property
    def architecture(self) -> str:
        """The architecture's name, which is also the prefix of its keys."""
        return str(self.fields.get("general.architecture") or "")

    def get(self, key: str, default: Any = None) -> Any:
        """Return the architecture's value for ``key``."""
        return self.fields.get(f"{self.architecture}.{key}", default)

    def need(self, key: str) -> Any:
        """Return the architecture's value for ``key``. Raises ModelError if the file has none."""
        value = self.get(key)
        if value is None:
            raise ModelError(f"The GGUF file lacks {self.architecture}.{key}.")
        return value

    def tokenizer(self, key: str, default: Any = None) -> Any:
        """Return the tokenizer's value for ``key``."""
        return self.fields.get(f"tokenizer.ggml.{key}", default)


def read_header(file: Path) -> GGUFHeader:
    """Read a file's metadata. Raises ModelError if it is no GGUF file or is cut short."""
    import gguf

    try:
        reader = gguf.GGUFReader(file)
        fields = {key: field.contents() for key, field in reader.fields.items()}
        tensors = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
        stretched = [float(tensor.data.max()) for tensor in reader.tensors if tensor.name == "rope_freqs.weight"]
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # the reader raises whatever a broken file provokes
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ModelError(f"{file} is no GGUF file, or is cut short: {reason}") from error
    return GGUFHeader(fields, tensors, stretched[0] if stretched else None)


def check_types(header: GGUFHeader, file: Path) -> None:
    """Raise UnsupportedModel if a tensor's quantisation is one that MLX cannot read, or the file is one of several."""
    if int(header.fields.get("split.count") or 1) > 1:
        raise UnsupportedModel(f"{file.name} is one part of a split model. Merge the parts into one file first.")
    unknown = sorted(set(header.tensors.values()) - NATIVE_TYPES - HALF_TYPES)
    if unknown:
        raise UnsupportedModel(
            f"{file.name} is quantised as {', '.join(unknown)}, which MLX cannot read. GGUF files of the types "
            f"{', '.join(sorted(NATIVE_TYPES | HALF_TYPES))} work; or use the model in MLX or safetensors format."
        )
