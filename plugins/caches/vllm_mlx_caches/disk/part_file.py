"""A part of a state as the bytes of a file: safetensors, with what it takes to trust them. No files are touched here.

A file holds the part's tensors, the tokens that it stands for, and in its metadata its own name, the model's identity,
and a checksum of all of that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple

import safetensors

from vllm_mlx_core.api import TOKEN_BYTES, Tensor, Tensors

_FORMAT = "1"
_TOKENS = "tokens"
_PREFIX = "state."


class StoredPart(NamedTuple):
    """A part, the packed tokens that it stands for (none: a snapshot's name says it all), and its place."""

    name: str
    tokens: bytes
    tensors: Tensors


class DamagedFile(ValueError):
    """A file does not hold what it was written with."""


def encode(part: StoredPart, identity: str) -> list[bytes | memoryview]:
    """Return the bytes of a part's file, piece by piece; those of its tensors are not copied."""
    shape = (len(part.tokens) // TOKEN_BYTES,)
    tensors = {f"{_PREFIX}{name}": tensor for name, tensor in part.tensors.items()}
    tensors[_TOKENS] = Tensor("U32", shape, part.tokens)
    metadata = {"format": _FORMAT, "identity": identity, "name": part.name}
    metadata["checksum"] = _checksum(metadata, tensors)
    header: dict[str, object] = {"__metadata__": metadata}
    position = 0
    for name in sorted(tensors):
        dtype, dimensions, data = tensors[name]
        header[name] = {"dtype": dtype, "shape": dimensions, "data_offsets": [position, position + len(data)]}
        position += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *(tensors[name].data for name in sorted(tensors))]


def decode(data: bytes, name: str, identity: str) -> StoredPart:
    """Return the part that a file of this name holds. Raises DamagedFile if it is any other than was written."""
    try:
        content = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
        tensors = {key: Tensor(each["dtype"], tuple(each["shape"]), each["data"]) for key, each in content}
        metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        checksum = metadata.pop("checksum")
        tokens = bytes(tensors[_TOKENS].data)
        if checksum != _checksum(metadata, tensors):
            raise DamagedFile("its checksum is another")
    except (safetensors.SafetensorError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise DamagedFile(f"{name}: {error!r}") from error
    if metadata != {"format": _FORMAT, "identity": identity, "name": name}:
        raise DamagedFile(f"{name} was written as {metadata.get('name')!r} in format {metadata.get('format')!r}")
    return StoredPart(name, tokens, {k.removeprefix(_PREFIX): v for k, v in tensors.items() if k != _TOKENS})


def _checksum(metadata: Mapping[str, str], tensors: Tensors) -> str:
    names = sorted(tensors)
    shapes = [(name, tensors[name].dtype, list(tensors[name].shape)) for name in names]
    digest = hashlib.sha256(json.dumps([sorted(metadata.items()), shapes]).encode())
    for name in names:
        digest.update(tensors[name].data)
    return digest.hexdigest()
