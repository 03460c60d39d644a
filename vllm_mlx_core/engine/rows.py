"""Batch caches without padding, by the names that mlx-lm's have: rows that come and go in place.

mlx-lm's own batch cache lines its rows up at their ends, so that it copies all of them whenever one joins or leaves,
and it holds neither quantised keys and values nor windows that keep the first tokens. Here each row has its own length,
and what it keeps of a position stands in the slot of that number, or where a subclass says. Attention does not mind the
order of its keys, so that a mask of what each slot holds is all that is needed.

The buffers have room for more rows and slots than are used: who joins is written behind the last row, and the last row
takes the place of one that leaves. Writing is in place as long as MLX finds that nobody else holds the buffer. Engine
thread only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import mlx.core as mx

STEP = 256
"""Buffers grow by so many slots and copy all that they hold, which is why layers do so at different lengths."""

Arrays: TypeAlias = tuple[mx.array, ...]
"""Keys or values [rows, heads, slots, width]: one array, or the quantised values, scales and biases of one."""


class Rows:
    """Rows of different lengths. ``offset`` (int32, [rows]) says how many tokens each has read."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = list(lengths)
        self.offset = mx.array(self._lengths, dtype=mx.int32)
        self._keys: Arrays | None = None
        self._values: Arrays | None = None
        self._wanted_rows = 0
        self._place = 0.0
        self._padding: list[int] | None = None

    def __len__(self) -> int:
        return len(self._lengths)

    # -- what subclasses say --------------------------------------------------------------------------------------

    def stored(self, array: mx.array) -> Arrays:
        """Return new keys or values as they are kept."""
        return (array,)

    def fetched(self, arrays: Arrays) -> Any:
        """Return keys or values as attention wants them."""
        return arrays[0]

    def slots_for(self, length: int) -> int:
        """Return how many slots a row of ``length`` tokens uses."""
        return length

    def slots_of(self, positions: mx.array) -> mx.array:
        """Return in which slots positions are kept."""
        return positions

    def positions_at(self, queries: mx.array, slots: mx.array) -> mx.array:
        """Return which position each slot holds when a position of ``queries`` is the latest; below 0: none."""
        return slots

    # -- what models use ------------------------------------------------------------------------------------------

    @property
    def keys(self) -> Any:
        """The whole buffer of the keys, unused rows and slots included; None if nothing has been read."""
        return None if self._keys is None else self.fetched(self._keys)

    @keys.setter
    def keys(self, keys: Any) -> None:
        self._keys = _as_arrays(keys)

    @property
    def values(self) -> Any:
        """The whole buffer of the values, unused rows and slots included; None if nothing has been read."""
        return None if self._values is None else self.fetched(self._values)

    @values.setter
    def values(self, values: Any) -> None:
        self._values = _as_arrays(values)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Write the next positions of every row and return all that is kept. Mutates."""
        count = keys.shape[2]
        rows, at = mx.arange(len(self))[:, None], self.slots_of(self.offset[:, None] + mx.arange(count))
        self.advance(count)
        new_keys, new_values = self.stored(keys), self.stored(values)
        self._make_room(new_keys, new_values)
        for buffers, new in ((self._keys, new_keys), (self._values, new_values)):
            for buffer, array in zip(buffers or (), new, strict=True):
                buffer[rows, :, at] = array.swapaxes(1, 2)
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[Any, Any]:
        """Return all that is kept, as attention wants it: views."""
        assert self._keys is not None
        assert self._values is not None
        return self.fetched(self._used(self._keys)), self.fetched(self._used(self._values))

    def make_mask(self, num_tokens: int, return_array: bool = False, window_size: int | None = None) -> mx.array:
        """Return what each of the next positions may look at, bool [rows, 1, num_tokens, slots]."""
        queries = (self.offset[:, None] + mx.arange(num_tokens))[..., None]
        held = self.positions_at(queries, mx.arange(self.slots_for(self.size() + num_tokens)))
        mask = (held >= 0) & (held <= queries)
        if window_size is not None:
            mask = mask & (held > queries - window_size)
        return mask[:, None]

    # -- what batches do ------------------------------------------------------------------------------------------

    def advance(self, count: int) -> None:
        """Note that every row has ``count`` positions more. Mutates."""
        self._lengths = [length + count for length in self._lengths]
        self._say_lengths()

    def prepare(self, *, right_padding: Sequence[int] | None = None, **_: Any) -> None:
        """Announce padding behind what is read next. Mutates."""
        if right_padding is not None:
            self._padding = list(right_padding)

    def finalize(self) -> None:
        """Forget the padding: what comes next is written over it. Mutates."""
        if self._padding is not None:
            self._lengths = [length - p for length, p in zip(self._lengths, self._padding, strict=True)]
            self._padding = None
            self._say_lengths()

    def reserve(self, rows: int) -> None:
        """Say that there will be so many rows soon: the buffers get room for them when they grow. Mutates."""
        self._wanted_rows = rows

    def fill(self, rows: Sequence[tuple[Arrays, Arrays] | None], place: float) -> None:
        """Take what each row holds; None is an empty one. Mutates; not what it is given.

        ``place`` is where the layer stands among all: from 0, the first, to below 1.
        """
        self._place = place
        form = next((row for row in rows if row is not None), None)
        if form is None:
            return
        self._make_room(*form)
        for number, row in enumerate(rows):
            if row is not None:
                self._write(number, *row)

    def filter(self, rows: mx.array) -> None:
        """Keep these rows, in this order. Mutates.

        In place if those that move come from behind the last that stays, unless half of the buffers is unused then.
        """
        kept: list[int] = rows.tolist()
        self._lengths = [self._lengths[row] for row in kept]
        self._say_lengths()
        if self._keys is None or self._values is None:
            return
        moved = [(to, row) for to, row in enumerate(kept) if to != row]
        slots = self._slots_with_room()
        has_rows, _, has_slots, _ = self._keys[0].shape
        if 2 * len(kept) * slots <= has_rows * has_slots or any(row < len(kept) for _, row in moved):
            self._keys, self._values = (
                tuple(array[rows] for array in cut(arrays, slots)) for arrays in (self._keys, self._values)
            )
            return
        for to, row in moved:
            used = self.slots_for(self._lengths[to])
            keys, values = (
                contiguous(cut(tuple(a[row : row + 1] for a in arrays), used)) for arrays in (self._keys, self._values)
            )
            mx.async_eval(keys, values)  # so that no view of the buffers is left when they are written to
            self._write(to, keys, values)

    def extend(self, other: Rows) -> None:
        """Add the rows of another one. Mutates; the other must not be used again."""
        first = len(self)
        self._lengths += other._lengths
        self._say_lengths()
        form = (self._keys, self._values) if self._keys is not None else (other._keys, other._values)
        if form[0] is None or form[1] is None:
            return
        self._make_room(form[0], form[1])
        if other._keys is not None and other._values is not None:
            self._write(first, other._used(other._keys), other._used(other._values))

    def row(self, row: int) -> tuple[int, Arrays, Arrays]:
        """Return the length of a row, and views of its keys and values in their slots."""
        length = self._lengths[row]
        assert self._keys is not None
        assert self._values is not None
        used = self.slots_for(length)
        keys, values = (cut(tuple(a[row : row + 1] for a in arrays), used) for arrays in (self._keys, self._values))
        return length, keys, values

    @property
    def state(self) -> Any:
        """Everything that MLX can evaluate."""
        return self._keys, self._values, self.offset

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return sum(array.nbytes for array in (*(self._keys or ()), *(self._values or ())))

    def size(self) -> int:
        """Return the length of the longest row."""
        return max(self._lengths, default=0)

    def empty(self) -> bool:
        """Return whether nothing has been read."""
        return self._keys is None

    def is_trimmable(self) -> bool:
        """Return whether the latest tokens could be dropped."""
        return True

    def _say_lengths(self) -> None:
        self.offset = mx.array(self._lengths, dtype=mx.int32)

    def _slots_with_room(self) -> int:
        """Return how many slots the buffers have when they grow or shrink: for one token more at least."""
        return self.slots_for(room_for(self.size() + 1, self._place))

    def _used(self, arrays: Arrays) -> Arrays:
        """Return what the rows hold, without the room for more: views."""
        return cut(tuple(array[: len(self)] for array in arrays), self.slots_for(self.size()))

    def _make_room(self, keys: Arrays, values: Arrays) -> None:
        """See to it that the buffers hold all rows and the longest; ``keys`` and ``values`` show their form."""
        used = self.slots_for(self.size())
        has_rows, has_slots = (0, 0) if self._keys is None else (self._keys[0].shape[0], self._keys[0].shape[2])
        if has_rows >= len(self) and has_slots >= used:
            return
        rows = has_rows if has_rows >= len(self) else max(len(self), self._wanted_rows)
        slots = has_slots if has_slots >= used else self._slots_with_room()
        self._keys = _grown(self._keys, keys, rows, slots)
        self._values = _grown(self._values, values, rows, slots)

    def _write(self, row: int, keys: Arrays, values: Arrays) -> None:
        """Write what rows hold, from ``row`` on, in place."""
        for buffers, new in ((self._keys, keys), (self._values, values)):
            for buffer, array in zip(buffers or (), new, strict=True):
                slots = min(buffer.shape[2], array.shape[2])
                buffer[row : row + array.shape[0], :, :slots] = array[:, :, :slots]


def room_for(length: int, place: float) -> int:
    """Return how many slots buffers get that are to hold ``length``, in the layer at this place (from 0 to below 1)."""
    first = int(place * STEP)
    return first - (first - length) // STEP * STEP


def cut(arrays: Arrays, slots: int) -> Arrays:
    """Return what the first slots hold: views."""
    return tuple(array[..., :slots, :] for array in arrays)


def contiguous(arrays: Arrays) -> Arrays:
    """Return copies that hold nothing but themselves. Lazy."""
    return tuple(map(mx.contiguous, arrays))


def _as_arrays(arrays: Any) -> Arrays | None:
    """Return keys or values as they are kept, whatever a model has made of what it was given."""
    if arrays is None:
        return None
    return (arrays,) if isinstance(arrays, mx.array) else tuple(arrays)


def _grown(arrays: Arrays | None, form: Arrays, rows: int, slots: int) -> Arrays:
    """Return buffers of this size with what ``arrays`` hold; without any, empty ones in the form of ``form``."""
    if arrays is None:
        return tuple(mx.zeros((rows, a.shape[1], slots, a.shape[3]), a.dtype) for a in form)
    more_rows, more_slots = rows - arrays[0].shape[0], slots - arrays[0].shape[2]
    return tuple(mx.pad(a, [(0, more_rows), (0, 0), (0, more_slots), (0, 0)]) for a in arrays)
