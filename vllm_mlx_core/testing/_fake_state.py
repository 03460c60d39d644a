"""A model state that is nothing but the tokens it has read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_mlx_core.api import KVSegment, KVSnapshot

SNAPSHOT_BYTES = 5


@dataclass(frozen=True, slots=True)
class FakeSnapshot:
    """What a ``FakeState`` that cannot be resumed anywhere holds of one point."""

    num_tokens: int
    can_truncate: bool
    nbytes: int = SNAPSHOT_BYTES

    def truncate(self, num_tokens: int) -> FakeSnapshot:
        """Return that of an earlier point. Raises ValueError as the interface demands."""
        if num_tokens > self.num_tokens or (num_tokens < self.num_tokens and not self.can_truncate):
            raise ValueError(f"A snapshot of {self.num_tokens} tokens was asked for {num_tokens}.")
        return replace(self, num_tokens=num_tokens)


@dataclass(frozen=True, slots=True)
class FakeSegment:
    """Some of a ``FakeState``'s tokens, and where they begin."""

    tokens: tuple[int, ...]
    start: int
    needs_snapshot: bool
    bytes_per_token: int

    @property
    def num_tokens(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        """What it pretends to hold."""
        return self.bytes_per_token * len(self.tokens)

    def part(self, start: int, stop: int) -> FakeSegment:
        """Return some of it. Raises ValueError as the interface demands."""
        _check_range(start, stop, len(self.tokens))
        return replace(self, tokens=self.tokens[start:stop], start=self.start + start)

    def join(self, after: Sequence[KVSegment], snapshot: KVSnapshot | None) -> FakeState:
        """Return the state that the parts make. Raises ValueError unless they fit together."""
        tokens: tuple[int, ...] = ()
        for part in (self, *after):
            if not isinstance(part, FakeSegment) or part.start != len(tokens):
                raise ValueError(f"A segment that does not begin at token {len(tokens)} was joined there: {part}")
            tokens += part.tokens
        if (snapshot is not None) != self.needs_snapshot:
            raise ValueError("A snapshot is missing or is one too many.")
        if snapshot is not None and snapshot.num_tokens != len(tokens):
            raise ValueError(f"A snapshot of {snapshot.num_tokens} tokens was joined to {len(tokens)}.")
        can_truncate = snapshot is None or snapshot.can_truncate
        return FakeState(tokens, can_truncate, self.bytes_per_token, is_windowed=self.needs_snapshot and can_truncate)


@dataclass(frozen=True, slots=True)
class FakeState:
    """A ``KVState`` to test cache policies with: whoever gets it back sees which tokens it stands for.

    By itself it is that of plain attention; ``can_truncate=False`` makes it one with recurrent layers,
    ``is_windowed`` one with sliding windows that are not full yet.
    """

    tokens: tuple[int, ...]
    can_truncate: bool = True
    bytes_per_token: int = 10
    is_windowed: bool = False

    @property
    def num_tokens(self) -> int:
        """Number of tokens read."""
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        """What it pretends to hold."""
        return self.bytes_per_token * len(self.tokens) + (SNAPSHOT_BYTES if self._needs_snapshot else 0)

    @property
    def snapshot(self) -> FakeSnapshot | None:
        """What exists only at this point."""
        return FakeSnapshot(len(self.tokens), self.can_truncate) if self._needs_snapshot else None

    def truncate(self, num_tokens: int) -> FakeState:
        """Return the state after only some tokens. Raises ValueError as the interface demands."""
        if num_tokens > len(self.tokens):
            raise ValueError(f"A state of {len(self.tokens)} tokens was asked for {num_tokens}.")
        if num_tokens < len(self.tokens) and not self.can_truncate:
            raise ValueError("A state that cannot go back was truncated.")
        return replace(self, tokens=self.tokens[:num_tokens])

    def segment(self, start: int, stop: int) -> FakeSegment:
        """Return what some tokens added. Raises ValueError as the interface demands."""
        _check_range(start, stop, len(self.tokens))
        return FakeSegment(self.tokens[start:stop], start, self._needs_snapshot, self.bytes_per_token)

    @property
    def _needs_snapshot(self) -> bool:
        return self.is_windowed or not self.can_truncate


def _check_range(start: int, stop: int, length: int) -> None:
    if not 0 <= start < stop <= length:
        raise ValueError(f"Tokens {start} to {stop} of {length} were asked for.")
