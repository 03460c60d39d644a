"""Which hook plugins there are, which of them are loaded, and what became of the others."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

import pluggy

from vllm_mlx_core.api import hooks
from vllm_mlx_core.api.errors import PluginError

from .discovery import Entry, Selector
from .loading import attempt, import_file, import_module, is_file, register
from .suggest import did_you_mean

log = logging.getLogger(__name__)

BUILTIN_DISTRIBUTION = "vllm-mlx-core"
State: TypeAlias = Literal["active", "broken", "blocked", "off"]


@dataclass(frozen=True, slots=True)
class Requests:
    """What the operator asked for: plugins to load, in order, and names to switch off."""

    wanted: Sequence[str] = ()
    unwanted: Sequence[Selector] = ()

    @classmethod
    def parse(cls, arguments: Iterable[str]) -> Requests:
        """Sort the arguments of ``--plugin``; naming one twice is as good as once."""
        arguments = list(dict.fromkeys(arguments))
        return cls(
            tuple(argument for argument in arguments if not argument.startswith("no:")),
            tuple(Selector.parse(argument[3:]) for argument in arguments if argument.startswith("no:")),
        )

    def blocks(self, entry: Entry) -> bool:
        """Return whether ``entry`` is switched off."""
        return any(selector.matches(entry) for selector in self.unwanted)


@dataclass(frozen=True, slots=True)
class HookPlugin:
    """One hook plugin and its state; ``detail`` says why it is not active."""

    entry: Entry
    state: State
    requested: bool = False
    detail: str = ""


@dataclass(slots=True)
class PluginSet:
    """The hook plugins of one host."""

    manager: pluggy.PluginManager
    discovered: Sequence[Entry]
    plugins: dict[str, HookPlugin] = field(default_factory=dict)
    """By ``name@distribution``."""

    def load(self, requests: Requests, *, autoload: bool) -> None:
        """Load what was asked for, and with ``autoload`` what third parties installed; built-ins in any case.

        Later registered hooks are asked earlier, so the order is: built-ins, third parties by name, requested ones as
        given. Mutates. Raises PluginError for a requested plugin that fails and for two of one name.
        """
        requested = list(dict.fromkeys(self._resolve(reference, requests) for reference in requests.wanted))
        for entry in sorted(self.discovered, key=_load_order):
            if entry in requested:
                continue
            rival = next((other for other in requested if other.name == entry.name), None)
            if requests.blocks(entry):
                self._note(entry, "blocked", f"switched off by --plugin no:{entry.name}")
            elif rival:
                self._note(entry, "blocked", f"{rival.selector} was asked for instead")
            elif not autoload and entry.distribution != BUILTIN_DISTRIBUTION:
                self._note(entry, "off", "autoload is disabled")
            else:
                self._note(entry, "active", "")
        self._refuse_duplicates()
        for plugin in list(self.plugins.values()):
            if plugin.state == "active":
                self._activate(plugin)
        for entry in requested:
            self._activate(HookPlugin(entry, "active", requested=True))

    def owner(self, name: str) -> HookPlugin:
        """Return the active plugin that is registered under ``name``."""
        active = (plugin for plugin in self.plugins.values() if plugin.state == "active")
        return next(plugin for plugin in active if plugin.entry.name == name)

    def fail(self, plugin: HookPlugin, error: PluginError) -> None:
        """Take out a plugin that failed. Mutates. Raises PluginError if it was asked for, else warns."""
        if self.manager.has_plugin(plugin.entry.name):
            self.manager.unregister(name=plugin.entry.name)
        self.plugins[plugin.entry.selector] = replace(plugin, state="broken", detail=str(error))
        if plugin.requested:
            raise error
        log.warning("%s It is left out.", error)

    def _resolve(self, reference: str, requests: Requests) -> Entry:
        entry = self._find(reference)
        if requests.blocks(entry):
            raise PluginError(f"Plugin {reference!r} is both asked for and switched off.")
        return entry

    def _find(self, reference: str) -> Entry:
        if is_file(reference):
            return Entry(reference, reference, "file")
        selector = Selector.parse(reference)
        found = [e for e in self.discovered if selector.matches(e) or e.target == reference]
        if len(found) > 1:
            raise PluginError(_offered_twice(reference, found))
        return found[0] if found else Entry(reference, reference, "module")

    def _note(self, entry: Entry, state: State, detail: str) -> None:
        self.plugins[entry.selector] = HookPlugin(entry, state, detail=detail)

    def _refuse_duplicates(self) -> None:
        by_name: dict[str, list[Entry]] = {}
        for plugin in self.plugins.values():
            if plugin.state == "active":
                by_name.setdefault(plugin.entry.name, []).append(plugin.entry)
        for name, entries in by_name.items():
            if len(entries) > 1:
                raise PluginError(_offered_twice(name, entries))

    def _activate(self, plugin: HookPlugin) -> None:
        entry = plugin.entry
        what = f"Plugin {entry.name!r}" + (f" of {entry.origin}" if entry.version else "")
        try:
            target = attempt(f"{what} cannot be loaded", lambda: self._import(entry))
            attempt(f"{what} cannot be used", lambda: register(self.manager, target, entry.name))
        except PluginError as error:
            self.fail(plugin, error)
        else:
            self.plugins[entry.selector] = plugin

    def _import(self, entry: Entry) -> object:
        if entry.distribution == "file":
            return import_file(Path(entry.name))
        if entry.distribution != "module":
            return entry.import_target()
        module = import_module(entry.name)
        if module is None:
            known = [discovered.name for discovered in self.discovered]
            raise PluginError(f"there is no such plugin or module.{did_you_mean(entry.name, known)}")
        return module


def new_manager() -> pluggy.PluginManager:
    """Return a plugin manager that knows this project's hooks and holds no plugin."""
    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    return manager


def _load_order(entry: Entry) -> tuple[bool, str, str]:
    return entry.distribution != BUILTIN_DISTRIBUTION, entry.name, entry.distribution


def _offered_twice(name: str, entries: Sequence[Entry]) -> str:
    offers = " or ".join(f"--plugin {entry.selector}" for entry in entries)
    return f"Plugin {name!r} is offered more than once; choose {offers}."
