"""The safetensors files of a checkpoint, judged before any of them is read: all there, whole, and small enough."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_mlx_core.api import ModelError

_MAX_HEADER = 100 << 20
_FLOAT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class WeightSizes:
    """Bytes of the weights by kind: floating point (number of values and bytes) and everything else."""

    float_values: int = 0
    float_nbytes: int = 0
    other_nbytes: int = 0

    def as_loaded(self, float_bytes: int | None) -> int:
        """Return the bytes in memory if every float takes ``float_bytes`` (None: as stored)."""
        floats = self.float_nbytes if float_bytes is None else self.float_values * float_bytes
        return floats + self.other_nbytes


def check_weight_files(folder: Path) -> WeightSizes:
    """Return the sizes of the weights in ``folder``. Raises ModelError if a file is missing, cut short or broken."""
    files = sorted(folder.glob("model*.safetensors"))
    missing = sorted(_indexed(folder) - {file.name for file in files})
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(f"Weights are missing in {folder}: {missing[0]}{more}. Download the model again.")
    if not files:
        other = next(iter(sorted([*folder.glob("*.bin"), *folder.glob("*.pth"), *folder.glob("*.safetensors")])), None)
        hint = f" ({other.name} is of another format: convert it with mlx_lm.convert)" if other else ""
        raise ModelError(f"There are no weights (model*.safetensors) in {folder}{hint}.")
    values = floats = others = 0
    for file in files:
        for entry in _read_header(file).values():
            start, end = entry["data_offsets"]
            width = _FLOAT_BYTES.get(entry["dtype"])
            if width is None:
                others += end - start
            else:
                floats += end - start
                values += (end - start) // width
    return WeightSizes(values, floats, others)


def check_memory(needed: int) -> None:
    """Raise ModelError if ``needed`` bytes are more than this machine has; far too late is when the kernel says so."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return
    if needed > total:
        raise ModelError(
            f"Not enough memory: the weights take {needed / 1e9:.1f} GB, this machine has {total / 1e9:.1f} GB. "
            "A quantised version of the model, or --dtype bfloat16, needs less."
        )


def _indexed(folder: Path) -> set[str]:
    file = folder / "model.safetensors.index.json"
    if not file.is_file():
        return set()
    try:
        return set(json.loads(file.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelError(f"{file} is not a valid index of weights.") from error


def _read_header(file: Path) -> Mapping[str, Any]:
    size = file.stat().st_size
    with file.open("rb") as stream:
        prefix = stream.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 0 < length <= min(size - 8, _MAX_HEADER):
            raise ModelError(f"{file} is cut short or no safetensors file. Download the model again.")
        try:
            header: dict[str, Any] = json.loads(stream.read(length))
            header.pop("__metadata__", None)
            end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{file} has a broken header. Download the model again.") from error
    if size < 8 + length + end:
        raise ModelError(f"{file} is cut short: {size} of {8 + length + end} bytes. Download the model again.")
    return header
