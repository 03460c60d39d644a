"""Lazy registries: extensions that are picked by name, found by metadata and imported when chosen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint
from typing import Generic, TypeVar

from vllm_mlx_core.api.errors import MissingExtra, PluginError
from vllm_mlx_core.api.hooks import Kind

from .discovery import Entry, Selector
from .loading import FAILURES
from .suggest import did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """The extensions of one kind: subclasses of ``base``, by name.

    Names come from entry-point metadata, read once by whoever makes the registry, and from plugins at run time.
    Nothing is imported before ``get`` or ``load``. Iteration yields the entries in force, sorted.
    """

    def __init__(self, kind: Kind, base: type[T], entry_points: Iterable[EntryPoint] = ()) -> None:
        self.kind = kind
        self.base = base
        self._entries = [Entry.from_entry_point(entry_point) for entry_point in entry_points]
        self._hidden: list[Selector] = []

    def __iter__(self) -> Iterator[Entry]:
        return (entry for entry in self.offers() if not self.is_hidden(entry))

    def __contains__(self, choice: str) -> bool:
        selector = Selector.parse(choice)
        return any(selector.matches(entry) for entry in self)

    def names(self) -> list[str]:
        """Return the distinct names, sorted."""
        return sorted({entry.name for entry in self})

    def offers(self) -> list[Entry]:
        """Return every entry, hidden ones included, sorted by name and distribution."""
        return sorted(self._entries, key=lambda entry: (entry.name, entry.distribution))

    def add(self, entry: Entry) -> None:
        """Offer an extension at run time. Mutates. Raises as ``check_offer`` does."""
        self.check_offer(entry)
        self._entries.append(entry)

    def check_offer(self, entry: Entry) -> None:
        """Raise PluginError if the target is neither a fitting class nor of the form ``"module:Class"``.

        A name must be one that can be chosen: no white space, and no ``@`` or ``:``, which stand behind names.
        """
        if not (isinstance(entry.name, str) and re.fullmatch(r"[^\s@:]+", entry.name)):
            raise PluginError(f"{self._describe(entry)} has a name that nobody can choose.")
        if isinstance(entry.target, str):
            if not re.fullmatch(r"[\w.]+:[\w.]+", entry.target):
                raise PluginError(f"{self._describe(entry)} is not of the form 'module:Class'.")
        else:
            self._verify(entry, entry.target)

    def hide(self, selector: Selector) -> bool:
        """Take what ``selector`` matches out of force; return whether there is anything. Mutates."""
        self._hidden.append(selector)
        return any(selector.matches(entry) for entry in self._entries)

    def is_hidden(self, entry: Entry) -> bool:
        """Return whether ``no:NAME`` switched this entry off."""
        return any(selector.matches(entry) for selector in self._hidden)

    def is_ambiguous(self, entry: Entry) -> bool:
        """Return whether another entry in force has the same name."""
        return sum(other.name == entry.name for other in self) > 1

    def definite(self, choice: str, distribution: str) -> str:
        """Return ``choice``; where several offer that name, as that of ``distribution`` if it is one of them."""
        offers = [entry for entry in self if entry.name == choice]
        own = [entry for entry in offers if Selector(choice, distribution).matches(entry)]
        return own[0].selector if own and len(offers) > 1 else choice

    def find(self, choice: str) -> Entry:
        """Return the one entry for ``name`` or ``name@distribution``. Imports nothing. Raises PluginError."""
        selector = Selector.parse(choice)
        found = [entry for entry in self if selector.matches(entry)]
        if len(found) == 1:
            return found[0]
        if found:
            offers = " or ".join(entry.selector for entry in found)
            raise PluginError(f"{self._label} {choice!r} is offered more than once; choose {offers}.")
        if any(selector.matches(entry) for entry in self._entries):
            raise PluginError(f"{self._label} {choice!r} is switched off by --plugin no:{selector.name}.")
        known = self.names()
        listing = f"Known: {', '.join(known)}." if known else "None is installed."
        raise PluginError(f"There is no {self._label} {choice!r}.{did_you_mean(selector.name, known)} {listing}")

    def get(self, choice: str) -> type[T]:
        """Import and return the class called ``name`` or ``name@distribution``.

        Raises PluginError if there is no such name, more than one, if it cannot be imported or is not a complete
        implementation; MissingExtra if its module says that an optional dependency is missing.
        """
        return self.load(self.find(choice))

    def load(self, entry: Entry) -> type[T]:
        """Import and return the class of one entry. Raises as ``get`` does."""
        try:
            target = entry.import_target()
        except MissingExtra:
            raise
        except FAILURES as error:
            raise PluginError(f"{self._describe(entry)} cannot be imported: {type(error).__name__}: {error}") from error
        return self._verify(entry, target)

    def _verify(self, entry: Entry, target: object) -> type[T]:
        if not (isinstance(target, type) and issubclass(target, self.base)):
            raise PluginError(f"{self._describe(entry)} is not a subclass of {self.base.__name__}.")
        missing = ", ".join(sorted(getattr(target, "__abstractmethods__", ())))
        if missing:
            raise PluginError(f"{self._describe(entry)} does not implement {missing}.")
        return target

    @property
    def _label(self) -> str:
        return self.kind.replace("ies", "y").removesuffix("s").replace("_", " ")

    def _describe(self, entry: Entry) -> str:
        return f"{self._label} {entry.name!r} of {entry.origin} ({entry.target_path})"
