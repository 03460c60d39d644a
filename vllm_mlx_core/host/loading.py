"""From what ``--plugin`` names to a plugin object, and the checks that every hook plugin has to pass."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import pluggy

from vllm_mlx_core.api.errors import PluginError, VllmMlxError
from vllm_mlx_core.api.hooks import PROJECT

from .suggest import did_you_mean

PREFIX = f"{PROJECT}_"
FAILURES = (Exception, SystemExit)
"""What a plugin may raise without ending the process: some modules exit when something they need is missing."""

T = TypeVar("T")


def is_file(reference: str) -> bool:
    """Return whether a ``--plugin`` argument names a file rather than an entry point or a module."""
    return reference.endswith(".py") or os.sep in reference


def import_file(path: Path) -> ModuleType:
    """Import one file as a module of its own. Raises PluginError if it is missing, and whatever it raises."""
    path = path.expanduser().resolve()
    if not path.is_file():
        raise PluginError(f"There is no file {path}.")
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    name = f"vllm_mlx_plugin_{path.stem}_{digest}"  # two files of one name are two modules
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def import_module(name: str) -> ModuleType | None:
    """Import a dotted name; None if there is no such module. Raises whatever the module raises."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise


def attempt(what: str, load: Callable[[], T]) -> T:
    """Return ``load()``; whatever it raises becomes a PluginError that starts with ``what``."""
    try:
        return load()
    except VllmMlxError as error:
        raise PluginError(f"{what}: {error}") from error
    except FAILURES as error:
        raise PluginError(f"{what}: {type(error).__name__}: {error}") from error


def register(manager: pluggy.PluginManager, plugin: object, name: str) -> None:
    """Register a hook plugin after checking it. Raises PluginError, and then leaves ``manager`` as it was."""
    if manager.is_registered(plugin):
        raise PluginError(f"it is loaded already, as {manager.get_name(plugin)!r}")
    _check(manager, plugin)
    try:
        manager.register(plugin, name)
    except pluggy.PluginValidationError as error:
        manager.unregister(name=name)
        raise PluginError(" ".join(str(error).split())) from error


def _check(manager: pluggy.PluginManager, plugin: object) -> None:
    if inspect.isclass(plugin):
        raise PluginError(f"{plugin.__qualname__} is a class; a plugin is a module or an instance")
    known = [name for name, _ in inspect.getmembers(manager.hook) if name.startswith(PREFIX)]
    hooks = dict(_implementations(manager, plugin))
    for attribute, options in hooks.items():
        hook = options["specname"] or attribute
        if hook not in known and not options["optionalhook"]:
            raise PluginError(f"there is no hook {hook}.{did_you_mean(hook, known)}")
        if options["wrapper"] or options["hookwrapper"]:
            raise PluginError(f"{attribute} is a hook wrapper, and those are not supported")
        if inspect.iscoroutinefunction(getattr(plugin, attribute)):
            raise PluginError(f"{attribute} is async, and hooks are plain functions")
    for attribute in dir(plugin):
        if attribute in known and attribute not in hooks:
            raise PluginError(f"{attribute} is not marked with @hookimpl")
    if not hooks:
        raise PluginError("it implements no hook")


def _implementations(manager: pluggy.PluginManager, plugin: object) -> Iterator[tuple[str, pluggy.HookimplOpts]]:
    for attribute in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, attribute)
        if options is not None:
            yield attribute, options
