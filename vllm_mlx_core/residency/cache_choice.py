"""How a cache policy is written: ``NAME[:k=v,…]``, and ``over=`` with another one as the last pair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vllm_mlx_core.api import UsageError

_OVER = "over="


class CacheChoice(NamedTuple):
    """A policy's name and options, and the text that names the policy under it."""

    name: str
    options: Mapping[str, str]
    over: str | None = None

    @classmethod
    def parse(cls, text: str) -> CacheChoice:
        """Read a choice. Raises UsageError."""
        name, _, rest = text.partition(":")
        options: dict[str, str] = {}
        while rest:
            if rest.startswith(_OVER):
                return cls(name, options, rest.removeprefix(_OVER))
            pair, _, rest = rest.partition(",")
            key, equals, value = pair.partition("=")
            if pair and not equals:
                raise UsageError(f"--cache {text}: {pair!r} is not of the form key=value.")
            if pair:
                options[key.strip()] = value.strip()
        return cls(name, options)

    @property
    def shown(self) -> str:
        """What clients may read: options may be paths of the machine, which are none of their business."""
        return self.name if self.over is None else f"{self.name} over {CacheChoice.parse(self.over).shown}"
