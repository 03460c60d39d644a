"""Batch caches without padding, by the names that mlx-lm's have: what those of this engine's own have in common.

mlx-lm cannot batch quantised keys and values, nor windows that keep the first tokens. Here each row has its own length,
and what it keeps of a position stands in the slot of that number, or where a subclass says. Attention does not mind the
order of its keys, so that a mask of what each slot holds is all that is needed. Engine thread only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import mlx.core as mx

STEP = 256
"""Buffers grow by so many slots."""

Arrays: TypeAlias = tuple[mx.array, ...]
"""Keys or values [rows, heads, slots, width]: one array, or the quantised values, scales and biases of one."""


class Rows:
    """Rows of different lengths. ``offset`` (int32, [rows]) says how many tokens each has read."""

    def __init__(self, offsets: Sequence[int]) -> None:
        self.keys: Arrays | None = None
        self.values: Arrays | None = None
        self.offset = mx.array(offsets, dtype=mx.int32)
        self._longest = max(offsets, default=0)
        self._padding: mx.array | None = None

    def stored(self, array: mx.array) -> Arrays:
        """Return new keys or values as they are kept."""
        raise NotImplementedError

    def fetched(self, arrays: Arrays) -> Any:
        """Return keys or values as attention wants them."""
        raise NotImplementedError

    def slots_for(self, length: int) -> int:
        """Return how many slots a row of ``length`` tokens uses."""
        return length

    def slots_of(self, positions: mx.array) -> mx.array:
        """Return in which slots positions are kept."""
        return positions

    def positions_at(self, queries: mx.array, slots: mx.array) -> mx.array:
        """Return which position each slot holds when a position of ``queries`` is the latest; below 0: none."""
        return slots

    def fill(self, rows: Sequence[tuple[Arrays, Arrays] | None]) -> None:
        """Take what each row holds; None is an empty one. Mutates."""
        room = self.slots_for(self._longest)
        model = next((row for row in rows if row is not None), None)
        if model is not None:
            self.keys, self.values = (
                _stacked([_widened(model[i] if row is None else row[i], room, row is None) for row in rows])
                for i in (0, 1)
            )

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Write the next positions of every row and return all that is kept. Mutates."""
        count = keys.shape[2]
        at = self.slots_of(self.offset[:, None] + mx.arange(count))
        self._longest += count
        used = self.slots_for(self._longest)
        self.keys = self._written(self.keys, self.stored(keys), at, used)
        self.values = self._written(self.values, self.stored(values), at, used)
        self.offset = self.offset + count
        return self.fetched(cut(self.keys, used)), self.fetched(cut(self.values, used))

    def _written(self, kept: Arrays | None, new: Arrays, at: mx.array, used: int) -> Arrays:
        if kept is None or kept[0].shape[2] < used:
            kept = _widened(new if kept is None else kept, self.slots_for(-(-used // STEP) * STEP), kept is None)
        index = at[:, None, :, None]
        pairs = zip(kept, new, strict=True)
        return tuple(mx.put_along_axis(a, mx.broadcast_to(index, b.shape), b, axis=2) for a, b in pairs)

    def make_mask(self, num_tokens: int, return_array: bool = False, window_size: int | None = None) -> mx.array:
        """Return what each of the next positions may look at, bool [rows, 1, num_tokens, slots]."""
        queries = (self.offset[:, None] + mx.arange(num_tokens))[..., None]
        held = self.positions_at(queries, mx.arange(self.slots_for(self._longest + num_tokens)))
        mask = (held >= 0) & (held <= queries)
        if window_size is not None:
            mask = mask & (held > queries - window_size)
        return mask[:, None]

    def prepare(self, *, right_padding: Sequence[int] | None = None, **_: Any) -> None:
        """Announce padding behind what is read next. Mutates."""
        if right_padding is not None:
            self._padding = mx.array(right_padding, dtype=mx.int32)

    def finalize(self) -> None:
        """Forget the padding: what comes next is written over it. Mutates."""
        if self._padding is not None:
            self.offset, self._padding = self.offset - self._padding, None

    def filter(self, rows: mx.array) -> None:
        """Keep these rows, in this order. Mutates."""
        self.offset = self.offset[rows]
        self._longest = max(self.offset.tolist(), default=0)
        used = self.slots_for(self._longest)
        if self.keys is not None and self.values is not None:
            self.keys, self.values = (cut(tuple(a[rows] for a in kept), used) for kept in (self.keys, self.values))

    def extend(self, other: Rows) -> None:
        """Add the rows of another one. Mutates; the other must not be used again."""
        mine, theirs = len(self.offset), len(other.offset)
        self.offset = mx.concatenate([self.offset, other.offset])
        self._longest = max(self._longest, other._longest)
        room = self.slots_for(self._longest)
        self.keys = _joined(self.keys, other.keys, mine, theirs, room)
        self.values = _joined(self.values, other.values, mine, theirs, room)

    def row(self, row: int) -> tuple[int, Arrays, Arrays]:
        """Return the length of a row, and its keys and values in their slots, in memory of their own."""
        length = self.offset.tolist()[row]
        assert self.keys is not None
        assert self.values is not None
        used = self.slots_for(length)
        keys, values = (tuple(a[row : row + 1] for a in cut(kept, used)) for kept in (self.keys, self.values))
        return length, keys, values

    @property
    def state(self) -> Any:
        """Everything that MLX can evaluate."""
        return self.keys, self.values, self.offset

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return sum(array.nbytes for array in (*(self.keys or ()), *(self.values or ())))

    def size(self) -> int:
        """Return the length of the longest row."""
        return self._longest

    def empty(self) -> bool:
        """Return whether nothing has been read."""
        return self.keys is None


def cut(arrays: Arrays, slots: int) -> Arrays:
    """Return what the first slots hold: views."""
    return tuple(array[..., :slots, :] for array in arrays)


def contiguous(arrays: Arrays) -> Arrays:
    """Return copies that hold nothing but themselves. Lazy."""
    return tuple(map(mx.contiguous, arrays))


def _widened(arrays: Arrays, slots: int, is_empty: bool) -> Arrays:
    """Return them with so many slots; of an empty row, only the form is taken."""
    if is_empty:
        return tuple(mx.zeros((*a.shape[:2], slots, a.shape[3]), a.dtype) for a in arrays)
    missing = slots - arrays[0].shape[2]
    if missing <= 0:
        return cut(arrays, slots)
    return tuple(mx.pad(a, [(0, 0), (0, 0), (0, missing), (0, 0)]) for a in arrays)


def _stacked(rows: Iterable[Arrays]) -> Arrays:
    return tuple(mx.concatenate(list(column)) for column in zip(*rows, strict=True))


def _joined(first: Arrays | None, second: Arrays | None, rows: int, more_rows: int, slots: int) -> Arrays | None:
    """Return both below each other; None is so many empty rows."""
    form = first or second
    if form is None:
        return None
    parts = []
    for arrays, count in ((first, rows), (second, more_rows)):
        blank = tuple(mx.zeros((count, a.shape[1], slots, a.shape[3]), a.dtype) for a in form)
        parts.append(blank if arrays is None else _widened(arrays, slots, False))
    return _stacked(parts)
