"""Calling hooks: who answered or failed is known by name, and an observer that fails is muted.

pluggy orders the implementations; calling them is done here, because pluggy's own call stops at the first exception and
does not say whose it was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, TypeVar

import pluggy

from vllm_mlx_core.api.errors import EngineFailed, PluginError, RequestError, VllmMlxError

from .loading import FAILURES

log = logging.getLogger(__name__)
T = TypeVar("T")


class Dispatcher:
    """Calls the hooks of one plugin manager. Implementations get the arguments they name. One thread at a time."""

    def __init__(self, manager: pluggy.PluginManager) -> None:
        self._manager = manager
        self._muted: set[str] = set()

    def implementations(self, hook: str) -> Iterator[pluggy.HookImpl]:
        """Yield a hook's implementations in the order in which they are called."""
        found: list[pluggy.HookImpl] = getattr(self._manager.hook, hook).get_hookimpls()
        return reversed(found)

    def all(self, hook: str, **arguments: Any) -> None:
        """Call every implementation. A VllmMlxError passes through, anything else becomes a PluginError."""
        for implementation in self.implementations(hook):
            self.call(implementation, hook, arguments)

    def first(self, hook: str, answer_type: type[T], **arguments: Any) -> tuple[T, str] | None:
        """Return the first answer that is not None and the name of the plugin that gave it. Raises as ``all`` does."""
        for implementation in self.implementations(hook):
            answer = self.call(implementation, hook, arguments)
            if answer is None:
                continue
            if not isinstance(answer, answer_type):
                raise PluginError(
                    f"Plugin {implementation.plugin_name!r} answered {hook} with {answer!r}, "
                    f"which is not a {answer_type.__name__}."
                )
            return answer, implementation.plugin_name
        return None

    def request(self, hook: str, **arguments: Any) -> None:
        """Call every implementation on behalf of one request.

        A RequestError passes through; anything else is logged and becomes an EngineFailed that is fit for clients.
        """
        for implementation in self.implementations(hook):
            try:
                self.call(implementation, hook, arguments)
            except RequestError:
                raise
            except VllmMlxError as error:
                log.exception("Plugin %r failed a request in %s", implementation.plugin_name, hook)
                raise EngineFailed(f"The plugin {implementation.plugin_name!r} failed on this request.") from error

    def observe(self, hook: str, *, muted_too: bool = False, **arguments: Any) -> None:
        """Call every implementation and never raise: a plugin that does is reported once and observes no more.

        With ``muted_too`` muted plugins are called as well.
        """
        for implementation in self.implementations(hook):
            name = implementation.plugin_name
            if name in self._muted and not muted_too:
                continue
            try:
                self.call(implementation, hook, arguments)
            except VllmMlxError as error:
                self._muted.add(name)
                log.exception("%s It is muted from now on.", error)

    def call(self, implementation: pluggy.HookImpl, hook: str, arguments: dict[str, Any]) -> Any:
        """Call one implementation. Raises as ``all`` does."""
        try:
            return implementation.function(*(arguments[name] for name in implementation.argnames))
        except VllmMlxError:
            raise
        except FAILURES as error:
            raise PluginError(
                f"Plugin {implementation.plugin_name!r} failed in {hook}: {type(error).__name__}: {error}"
            ) from error
