"""The listing behind ``vllm-mlx plugins``: what is offered, by whom, and whether it works."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

from vllm_mlx_core.api.errors import MissingExtra, PluginError

from .discovery import Entry
from .manager import Host
from .plugins import HookPlugin
from .registry import Registry

HOOKS = "hooks"
State: TypeAlias = Literal["active", "available", "ok", "blocked", "off", "ambiguous", "missing extra", "broken"]
"""``active``: a loaded hook plugin. ``available``: can be chosen, not imported yet. ``ok``: imported and checked.
``blocked``: switched off by ``no:NAME``. ``off``: not loaded, because autoload is disabled. ``ambiguous``: another
distribution offers the name, so it takes ``name@distribution``. ``missing extra``: needs an optional dependency.
``broken``: ``detail`` says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the listing. ``kind`` is a registry's kind, or ``hooks``; ``aliases``: its other names."""

    kind: str
    name: str
    distribution: str
    version: str
    state: State
    target: str
    detail: str = ""
    aliases: Sequence[str] = ()


def rows(host: Host, *, check: bool = False) -> list[Row]:
    """Return the listing of a loaded host. With ``check`` every target is imported and verified, else none is."""
    found = [_hook_row(plugin) for plugin in host.plugins]
    for registry in host.registries.values():
        found += _registry_rows(registry, check=check)
    return found


def is_broken(listing: Iterable[Row]) -> bool:
    """Return whether anything in the listing does not work."""
    return any(row.state == "broken" for row in listing)


def as_json(listing: Iterable[Row]) -> str:
    """Return the listing as a JSON array of objects."""
    return json.dumps([asdict(row) for row in listing], indent=2)


def as_table(listing: Sequence[Row]) -> str:
    """Return the listing as text in columns; below it a line for each entry that has something to explain."""
    header = ("KIND", "NAME", "DISTRIBUTION", "VERSION", "STATE", "TARGET")
    lines = [header, *((r.kind, _names(r), r.distribution, r.version, r.state, r.target) for r in listing)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    details = [f"{row.kind} {row.name}: {row.detail}" for row in listing if row.detail]
    return "\n".join([*table, *([""] if details else []), *details])


def _names(row: Row) -> str:
    return f"{row.name} ({', '.join(row.aliases)})" if row.aliases else row.name


def _hook_row(plugin: HookPlugin) -> Row:
    return _row(HOOKS, plugin.entry, plugin.state, plugin.detail)


def _registry_rows(registry: Registry[Any], *, check: bool) -> list[Row]:
    """Return a row for each target, under its canonical name; a name of which there is more to say has its own."""
    plain: dict[tuple[str, str], list[Entry]] = {}
    found = []
    for entry in registry.offers():
        if registry.is_hidden(entry) or registry.is_ambiguous(entry):
            found.append(_entry_row(registry, entry, check=check))
        else:
            plain.setdefault((entry.distribution, entry.target_path), []).append(entry)
    for entries in plain.values():
        first = _canonical(entries, registry.base)
        aliases = [entry.name for entry in entries if entry is not first]
        found.append(replace(_entry_row(registry, first, check=check), aliases=aliases))
    return sorted(found, key=lambda row: (row.name, row.distribution))


def _canonical(entries: Sequence[Entry], base: type) -> Entry:
    """Return the entry that is called like its module, else like its class (``base`` apart), else the first by name.

    The order in which a package declares its entry points does not survive the building of the package.
    """
    module, _, class_name = entries[0].target_path.partition(":")
    named = {_bare(entry.name): entry for entry in reversed(entries)}
    by_module = named.get(_bare(module.rpartition(".")[2]))
    by_class = named.get(_bare(class_name).removesuffix(_bare(base.__name__)))
    return by_module or by_class or entries[0]


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _entry_row(registry: Registry[Any], entry: Entry, *, check: bool) -> Row:
    state: State = "available"
    detail = ""
    if registry.is_hidden(entry):
        return _row(registry.kind, entry, "blocked", f"switched off by --plugin no:{entry.name}")
    if registry.is_ambiguous(entry):
        state, detail = "ambiguous", f"choose it as {entry.selector}"
    if check:
        try:
            registry.load(entry)
            state = "ok" if state == "available" else state
        except MissingExtra as error:
            state, detail = "missing extra", str(error)
        except PluginError as error:
            state, detail = "broken", str(error)
    return _row(registry.kind, entry, state, detail)


def _row(kind: str, entry: Entry, state: State, detail: str) -> Row:
    return Row(kind, entry.name, entry.distribution, entry.version, state, entry.target_path, " ".join(detail.split()))
