"""The ASGI application: front-ends mounted behind what protects them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from typing import TypeAlias

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from vllm_mlx_core import __version__
from vllm_mlx_core.api import EngineClient, MissingExtra, PluginError, ProtocolFrontend, Settings
from vllm_mlx_core.host import Host
from vllm_mlx_core.host.discovery import Entry
from vllm_mlx_core.host.loading import attempt

from . import assumed_json, errors, host_check
from .auth import Auth
from .cors import CORS
from .description import describe_keys
from .health import health_router
from .limits import BodyLimit
from .rate_limit import RateLimit
from .request_id import RequestId

log = logging.getLogger(__name__)

Background: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]
"""Makes a context that is entered when the server has started and left before it stops."""


def create_app(
    engine: EngineClient, host: Host, settings: Settings, *, background: Background = nullcontext
) -> FastAPI:
    """Return the application that serves the chosen front-ends, or all that are registered.

    Plugins may add routes and middleware; both stay behind authentication and limits. Raises PluginError or
    MissingExtra if a front-end that was asked for cannot be used; one that was only found is left out with a warning.
    """
    routed = []
    for entry in _choose(host, settings.protocols):
        try:
            routed.append(_routed(f"The protocol {entry.name!r}", host.protocols.load(entry), engine, settings))
        except (PluginError, MissingExtra) as error:
            if settings.protocols:
                raise
            log.warning("The protocol %r is not served: %s", entry.name, error)
            continue
        host.add_observer(f"protocol {entry.name}", routed[-1][0])
    return _assemble(engine, routed, settings, lambda app: host.mount(app, engine), host.shutdown, background)


def assemble(
    engine: EngineClient,
    frontends: Sequence[ProtocolFrontend],
    settings: Settings,
    *,
    mount: Callable[[FastAPI], None] = lambda app: None,
    stopped: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Return the application of these front-ends. ``mount`` may add to it, ``stopped`` is called when it has stopped.

    ``app.state.paths`` are the paths of the front-ends' routes, ``app.state.frontends`` they themselves. Raises
    PluginError if two of them claim the same route.
    """
    return _assemble(engine, [(each, each.router()) for each in frontends], settings, mount, stopped)


def _assemble(
    engine: EngineClient,
    routed: Sequence[tuple[ProtocolFrontend, APIRouter]],
    settings: Settings,
    mount: Callable[[FastAPI], None],
    stopped: Callable[[], None],
    background: Background = nullcontext,
) -> FastAPI:
    frontends = [frontend for frontend, _ in routed]

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.callback(stopped)
            for frontend in frontends:
                await stack.enter_async_context(frontend.lifespan())
            await stack.enter_async_context(background())
            yield

    app = FastAPI(
        title="vllm-mlx",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    health = health_router(engine)
    app.include_router(health)
    routes = _api_routes(health)
    taken: dict[tuple[str, str], ProtocolFrontend] = {}
    for frontend, router in routed:
        for route in _api_routes(router):
            _claim(taken, frontend, route)
            routes.append(route)
        app.include_router(router)
    app.state.paths = frozenset(path for _, path in taken)
    app.state.frontends = frontends
    mount(app)
    renderer = errors.Renderer(frontends)
    errors.install(app, renderer, routes)
    if settings.api_keys:
        describe_keys(app)
    _protect(app, renderer, settings, assumed_json.paths_of(frontends))
    return app


def _api_routes(router: APIRouter) -> list[APIRoute]:
    return [route for route in router.routes if isinstance(route, APIRoute)]


def _protect(app: FastAPI, renderer: errors.Renderer, settings: Settings, json_paths: Sequence[str]) -> None:
    """Wrap everything that is mounted so far. What is added last stands outermost."""
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    if json_paths:
        app.add_middleware(assumed_json.AssumeJSON, paths=json_paths)
    if settings.rate_limit:
        app.add_middleware(RateLimit, limit=settings.rate_limit)
    app.add_middleware(Auth, keys=settings.api_keys)
    if host_check.wanted(settings):
        app.add_middleware(host_check.HostCheck, allowed=settings.allowed_hosts)
    app.add_middleware(errors.ErrorBoundary, renderer=renderer)
    if settings.cors_origins:
        app.add_middleware(CORS, origins=settings.cors_origins)
    app.add_middleware(RequestId)


def _choose(host: Host, names: Sequence[str]) -> list[Entry]:
    if names:
        return [host.protocols.find(name) for name in dict.fromkeys(names)]
    return list(host.protocols)


def _routed(
    what: str, kind: type[ProtocolFrontend], engine: EngineClient, settings: Settings
) -> tuple[ProtocolFrontend, APIRouter]:
    """Return a new front-end and its routes; whatever it raises becomes a PluginError that starts with ``what``."""
    frontend = attempt(f"{what} cannot be used", lambda: kind(engine, settings))
    router = attempt(f"{what} cannot be used", frontend.router)
    if not isinstance(router, APIRouter):
        raise PluginError(f"{what} cannot be used: its router() gives a {type(router).__name__}.")
    return frontend, router


def _claim(taken: dict[tuple[str, str], ProtocolFrontend], frontend: ProtocolFrontend, route: APIRoute) -> None:
    for method in sorted(route.methods or ()):
        other = taken.setdefault((method, route.path), frontend)
        if other is not frontend:
            names = f"{type(other).__name__} and {type(frontend).__name__}"
            raise PluginError(f"{names} both serve {method} {route.path}: choose one with --protocol.")
