"""A model state that is nothing but the tokens it has read."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class FakeState:
    """A ``KVState`` to test cache policies with: whoever gets it back sees which tokens it stands for."""

    tokens: tuple[int, ...]
    can_truncate: bool = True
    bytes_per_token: int = 10

    @property
    def num_tokens(self) -> int:
        """Number of tokens read."""
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        """What it pretends to hold."""
        return self.bytes_per_token * len(self.tokens)

    def truncate(self, num_tokens: int) -> FakeState:
        """Return the state after the first ``num_tokens`` tokens. Raises ValueError as the interface demands."""
        if num_tokens > len(self.tokens):
            raise ValueError(f"A state of {len(self.tokens)} tokens was asked for {num_tokens}.")
        if num_tokens < len(self.tokens) and not self.can_truncate:
            raise ValueError("A state that cannot go back was truncated.")
        return replace(self, tokens=self.tokens[:num_tokens])
