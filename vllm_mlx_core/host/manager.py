"""The plugin host: one object that owns every registry and every hook plugin of a process."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, get_args

from vllm_mlx_core.api.caching import CachePolicy
from vllm_mlx_core.api.errors import ModelNotFound, PluginError, UnsupportedModel
from vllm_mlx_core.api.hooks import PROJECT, Kind
from vllm_mlx_core.api.models import Checkpoint, LoadOptions, ModelFamily, ParserChoice
from vllm_mlx_core.api.parsing import ReasoningParser, ToolParser
from vllm_mlx_core.api.protocols import ProtocolFrontend

from .discovery import Entry, installed
from .dispatch import Dispatcher
from .plugins import HookPlugin, PluginSet, Requests, new_manager
from .registry import Registry
from .suggest import did_you_mean

if TYPE_CHECKING:
    import argparse

    from fastapi import FastAPI

    from vllm_mlx_core.api.messages import GenerateRequest, RequestSummary, StepStats
    from vllm_mlx_core.api.protocols import EngineClient
    from vllm_mlx_core.api.settings import Settings


class Host:
    """Registries for what is picked by name, and one typed method per hook for what plugins have a say in.

    ``entry_points`` replaces what is installed, so that a test sees only what it made. The constructor reads metadata
    and imports no plugin; call ``load`` once before anything else. Not thread-safe.
    """

    def __init__(self, entry_points: Iterable[EntryPoint] | None = None) -> None:
        groups: dict[str, list[EntryPoint]] = {}
        for entry_point in installed() if entry_points is None else entry_points:
            groups.setdefault(entry_point.group, []).append(entry_point)

        def of_kind(kind: Kind) -> list[EntryPoint]:
            return groups.get(f"{PROJECT}.{kind}", [])

        self.tool_parsers = Registry("tool_parsers", ToolParser, of_kind("tool_parsers"))
        self.reasoning_parsers = Registry("reasoning_parsers", ReasoningParser, of_kind("reasoning_parsers"))
        self.model_families = Registry("model_families", ModelFamily, of_kind("model_families"))
        self.cache_policies = Registry("cache_policies", CachePolicy, of_kind("cache_policies"))
        self.protocols = Registry("protocols", ProtocolFrontend, of_kind("protocols"))
        self._plugins = PluginSet(new_manager(), [Entry.from_entry_point(each) for each in groups.get(PROJECT, [])])
        self._dispatch = Dispatcher(self._plugins.manager)

    @property
    def registries(self) -> dict[Kind, Registry[Any]]:
        """The registries by kind."""
        return {kind: getattr(self, kind) for kind in get_args(Kind)}

    @property
    def plugins(self) -> list[HookPlugin]:
        """Every hook plugin that was discovered or asked for, with its state, sorted by name."""
        return sorted(self._plugins.plugins.values(), key=lambda plugin: plugin.entry.selector)

    # -- setting up ------------------------------------------------------------------------------------------------

    def load(self, requested: Iterable[str] = (), *, autoload: bool | None = None) -> None:
        """Load hook plugins and let them offer extensions. Call once.

        ``requested`` are arguments of ``--plugin``: an entry point's name (``name@distribution`` where two have it), a
        module, a path to a file, or ``no:NAME``, which blocks the hook plugin of that name and hides the registry
        entries of that name. Without ``autoload`` (default: unless ``VLLM_MLX_DISABLE_PLUGIN_AUTOLOAD=1``) third
        parties' plugins are loaded only if requested; the built-in ones always are, unless blocked.

        Raises PluginError if a requested plugin fails, two plugins have one name, or ``no:`` names nothing. A
        discovered plugin that fails is left out, with a warning.
        """
        if autoload is None:
            autoload = os.environ.get("VLLM_MLX_DISABLE_PLUGIN_AUTOLOAD") != "1"
        requests = Requests.parse(requested)
        self._plugins.load(requests, autoload=autoload)
        self._collect_offers()
        self._block(requests)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Let plugins add options to ``serve``. Raises PluginError, for instance if an option exists already."""
        self._dispatch.all("vllm_mlx_add_options", parser=parser)

    def configure(self, settings: Settings) -> None:
        """Let plugins look at the settings. Raises UsageError if one objects, PluginError if one fails."""
        self._dispatch.all("vllm_mlx_configure", settings=settings)

    # -- deciding --------------------------------------------------------------------------------------------------

    def resolve_model(self, reference: str | None, options: LoadOptions) -> Checkpoint:
        """Return the checkpoint the operator means; may download. Raises ModelError or PluginError."""
        found = self._dispatch.first("vllm_mlx_resolve_model", Checkpoint, reference=reference, options=options)
        if found is None:
            what = "There is no default model" if reference is None else f"No plugin finds a model {reference!r}"
            raise ModelNotFound(f"{what}; see `vllm-mlx plugins` for what is installed.")
        return found[0]

    def detect_family(self, checkpoint: Checkpoint) -> str:
        """Return the name of the registered family that loads a checkpoint.

        A plugin's answer comes first; without one it is the family that is registered under the ``model_type``.
        Raises UnsupportedModel.
        """
        known = self.model_families.names()
        found = self._dispatch.first("vllm_mlx_detect_family", str, checkpoint=checkpoint, families=known)
        model = repr(checkpoint.name or str(checkpoint.path))
        if found is None:
            model_type = checkpoint.model_type
            if model_type in known:
                return model_type
            kind = f"model_type {model_type!r}" if model_type else "no model_type"
            hint = did_you_mean(model_type, known)
            raise UnsupportedModel(f"No installed model family loads {model} ({kind}).{hint}")
        family, plugin = found
        if family not in self.model_families:
            raise UnsupportedModel(
                f"Plugin {plugin!r} wants to load {model} with the model family {family!r}, which is not installed."
                f"{did_you_mean(family, known)}"
            )
        return self._definite(self.model_families, family, plugin)

    def choose_parsers(self, checkpoint: Checkpoint, family: str) -> ParserChoice:
        """Return the parsers that plugins choose for a checkpoint; none if no plugin has an opinion."""
        found = self._dispatch.first("vllm_mlx_choose_parsers", ParserChoice, checkpoint=checkpoint, family=family)
        if found is None:
            return ParserChoice()
        choice, plugin = found
        return choice._replace(
            tool=choice.tool and self._definite(self.tool_parsers, choice.tool, plugin),
            reasoning=choice.reasoning and self._definite(self.reasoning_parsers, choice.reasoning, plugin),
        )

    def choose_cache(self, checkpoint: Checkpoint, family: str, settings: Settings) -> str | None:
        """Return the cache policy that plugins choose, ``NAME[:k=v,…]``; None if no plugin has an opinion."""
        found = self._dispatch.first(
            "vllm_mlx_choose_cache", str, checkpoint=checkpoint, family=family, settings=settings
        )
        if found is None:
            return None
        return self._definite_cache(*found)

    def cover_cache(self, cache: str, settings: Settings) -> str | None:
        """Return the cache policy that plugins put over ``cache``, ``NAME:…,over=…``; None if no plugin does."""
        found = self._dispatch.first("vllm_mlx_cover_cache", str, cache=cache, settings=settings)
        return None if found is None else self._definite_cache(*found)

    def _definite_cache(self, choice: str, plugin: str) -> str:
        name, colon, options = choice.partition(":")
        return self._definite(self.cache_policies, name, plugin) + colon + options

    def _definite(self, registry: Registry[Any], choice: str, plugin: str) -> str:
        """Return what a plugin chose: where several packages offer that name, it means that of its own."""
        return registry.definite(choice, self._plugins.owner(plugin).entry.distribution)

    # -- serving ---------------------------------------------------------------------------------------------------

    def mount(self, app: FastAPI, engine: EngineClient) -> None:
        """Let plugins add routes and middleware. Raises PluginError."""
        self._dispatch.all("vllm_mlx_mount", app=app, engine=engine)

    def add_observer(self, name: str, observer: object) -> None:
        """Call an object's ``@hookimpl`` methods from now on, in place of those of an earlier one of this name."""
        manager = self._plugins.manager
        if manager.has_plugin(name):
            manager.unregister(name=name)
        manager.register(observer, name=name)

    def request_received(self, request: GenerateRequest) -> None:
        """Let plugins adjust a request. Mutates it. Raises RequestError if one refuses or fails."""
        self._dispatch.request("vllm_mlx_request_received", request=request)

    # -- observing: never raises -----------------------------------------------------------------------------------

    def request_finished(self, summary: RequestSummary) -> None:
        """Tell plugins how a request went."""
        self._dispatch.observe("vllm_mlx_request_finished", summary=summary)

    def step_finished(self, stats: StepStats) -> None:
        """Tell plugins about an engine step."""
        self._dispatch.observe("vllm_mlx_step_finished", stats=stats)

    def shutdown(self) -> None:
        """Let plugins release what they hold, muted ones too."""
        self._dispatch.observe("vllm_mlx_shutdown", muted_too=True)

    # -- loading ---------------------------------------------------------------------------------------------------

    def _collect_offers(self) -> None:
        hook = "vllm_mlx_register"
        for implementation in list(self._dispatch.implementations(hook)):
            plugin = self._plugins.owner(implementation.plugin_name)
            offers = _Offers(self, plugin)
            try:
                self._dispatch.call(implementation, hook, {"registrar": offers})
            except PluginError as error:
                self._plugins.fail(plugin, error)
            else:
                offers.commit()

    def _block(self, requests: Requests) -> None:
        for selector in requests.unwanted:
            hidden = [registry.hide(selector) for registry in self.registries.values()]
            blocked = [selector.matches(each.entry) for each in self.plugins]
            if any(hidden + blocked):
                continue
            known = {plugin.entry.name for plugin in self.plugins}
            known.update(entry.name for registry in self.registries.values() for entry in registry.offers())
            choice = "@".join(filter(None, selector))
            raise PluginError(f"--plugin no:{choice} matches nothing.{did_you_mean(selector.name, known)}")


class _Offers:
    """The registrar of one plugin: what it offers takes effect only if the plugin does not fail."""

    def __init__(self, host: Host, plugin: HookPlugin) -> None:
        self._registries = host.registries
        self._plugin = plugin
        self._offers: list[tuple[Kind, Entry]] = []

    def add(self, kind: Kind, name: str, target: str | type) -> None:
        if kind not in self._registries:
            raise PluginError(
                f"Plugin {self._plugin.entry.name!r} offers {name!r} as {kind!r}, which is not a kind of extension."
                f"{did_you_mean(kind, self._registries)}"
            )
        origin = self._plugin.entry
        distribution = origin.name if origin.distribution in ("file", "module") else origin.distribution
        entry = Entry(name, target, distribution, origin.version)
        self._registries[kind].check_offer(entry)
        self._offers.append((kind, entry))

    def commit(self) -> None:
        for kind, entry in self._offers:
            self._registries[kind].add(entry)
