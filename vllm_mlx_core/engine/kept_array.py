"""Keys or values as the prefix cache keeps them: as they are, or quantised. Lazy; engine thread only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from vllm_mlx_core.api import KVQuantization


@dataclass(frozen=True, slots=True)
class KeptArray:
    """An array [1, heads, tokens, width], or the quantised values, scales and biases of one. Immutable."""

    arrays: tuple[mx.array, ...]
    quantization: KVQuantization | None = None

    @classmethod
    def of(cls, array: mx.array) -> KeptArray:
        """Return an array as it is."""
        return cls((array,))

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return sum(array.nbytes for array in self.arrays)

    def cut(self, start: int, stop: int) -> KeptArray:
        """Return that of some tokens: a view."""
        return KeptArray(tuple(array[..., start:stop, :] for array in self.arrays), self.quantization)

    def contiguous(self) -> KeptArray:
        """Return a copy that holds nothing but itself."""
        return KeptArray(tuple(map(mx.contiguous, self.arrays)), self.quantization)

    def quantised(self, quantization: KVQuantization) -> KeptArray:
        """Return it quantised; itself if it is already, or if its width does not divide into groups."""
        if self.quantization is not None or not fits(self.arrays[0], quantization):
            return self
        arrays = mx.quantize(self.arrays[0], group_size=quantization.group_size, bits=quantization.bits)
        return KeptArray(tuple(arrays), quantization)

    def restored(self) -> mx.array:
        """Return the array that it stands for."""
        if self.quantization is None:
            return self.arrays[0]
        values, scales, biases = self.arrays
        how = self.quantization
        return mx.dequantize(values, scales, biases, group_size=how.group_size, bits=how.bits)


def joined(parts: Sequence[KeptArray]) -> KeptArray:
    """Return what consecutive tokens keep, quantised if all parts are, in the same way."""
    if len(parts) == 1:
        return parts[0]
    how = parts[0].quantization
    if all(part.quantization == how for part in parts):
        columns = zip(*(part.arrays for part in parts), strict=True)
        return KeptArray(tuple(mx.concatenate(list(column), axis=-2) for column in columns), how)
    return KeptArray.of(mx.concatenate([part.restored() for part in parts], axis=-2))


def fits(array: mx.array, quantization: KVQuantization) -> bool:
    """Return whether an array's last axis divides into groups."""
    return int(array.shape[-1]) % quantization.group_size == 0
