"""What is installed, by its metadata: nothing here imports a plugin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from typing import NamedTuple

from vllm_mlx_core.api.hooks import PROJECT


def installed() -> Iterator[EntryPoint]:
    """Yield the entry points of this project's groups, of each distribution only the copy that is in force."""
    seen: set[str] = set()
    for distribution in distributions():
        offered = [each for each in distribution.entry_points if each.group.partition(".")[0] == PROJECT]
        if offered and (name := _normalise(distribution.name)) not in seen:
            seen.add(name)
            yield from offered


class Selector(NamedTuple):
    """What the user types to choose something: ``name``, or ``name@distribution`` where a name is not enough."""

    name: str
    distribution: str = ""

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Split ``name[@distribution]``."""
        name, _, distribution = text.partition("@")
        return cls(name, distribution)

    def matches(self, entry: Entry) -> bool:
        """Return whether this selects ``entry``."""
        return self.name == entry.name and (
            not self.distribution or _normalise(self.distribution) == _normalise(entry.distribution)
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One offer of an extension: its name, what it points at, and who offers it.

    ``target`` is ``"module:Class"`` or the class itself. ``distribution`` is the installed package, or for an
    offer made at run time by an uninstalled plugin, that plugin's name.
    """

    name: str
    target: str | type
    distribution: str
    version: str = ""

    @classmethod
    def from_entry_point(cls, entry_point: EntryPoint) -> Entry:
        """Describe an entry point without importing it."""
        dist = entry_point.dist
        if dist is None:
            return cls(entry_point.name, entry_point.value, "unknown")
        return cls(entry_point.name, entry_point.value, dist.name, dist.version)

    @property
    def origin(self) -> str:
        """Distribution and version."""
        return f"{self.distribution} {self.version}".strip()

    @property
    def selector(self) -> str:
        """``name@distribution``."""
        return f"{self.name}@{self.distribution}"

    @property
    def target_path(self) -> str:
        """The target as ``module:Class``."""
        if isinstance(self.target, str):
            return self.target
        if isinstance(self.target, type):
            return f"{self.target.__module__}:{self.target.__qualname__}"
        return repr(self.target)  # no plugin should offer this, and this is how it is told

    def import_target(self) -> object:
        """Import and return the target; whatever its module raises passes through."""
        if isinstance(self.target, str):
            return EntryPoint(self.name, self.target, "").load()
        return self.target


def _normalise(distribution: str) -> str:
    """Return a distribution's name in the form in which spellings of it compare equal."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
