"""Serve a model over HTTP, to every client of the installed protocols."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import nullcontext
from typing import TYPE_CHECKING

from . import options, serve_options, serve_settings

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI

    from vllm_mlx_core.api import Settings
    from vllm_mlx_core.host import Host
    from vllm_mlx_core.residency.loader import LoadedModel

HELP = "serve a model over HTTP"
CHAT_PATH = "/v1/chat/completions"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.usage = "%(prog)s [MODEL] [option ...]"
    options.add_model(parser, "serve")
    serve_options.add_network(parser)
    options.add_loading(parser)
    serve_options.add_output(parser)
    serve_options.add_scheduling(parser)
    serve_options.add_cache(parser)
    serve_options.add_sampling_defaults(parser)


def run(args: Namespace, host: Host) -> int:
    """Serve until SIGTERM or Ctrl-C.

    What can be wrong is found out in the order of what it costs: options, protocols, certificate and address come
    before the model.
    """
    from . import logs

    logs.configure(args.log_level, args.log_format)
    settings = serve_settings.to_settings(args)
    host.configure(settings)
    for name in settings.protocols:
        host.protocols.get(name)

    from vllm_mlx_core import server

    server.check_certificate(settings)
    with server.bind(settings) as listener:
        loaded = _load(args, host, settings)
        from vllm_mlx_core.residency.pool import ModelPool

        pool = ModelPool([loaded])
        try:
            app = server.create_app(pool, host, settings, background=pool.background)
            banner = _banner(args, settings, loaded, app, listener)
            server.serve(app, listener, settings, ready=lambda: print(banner, flush=True))
        finally:
            pool.close()
    return 0


def _load(args: Namespace, host: Host, settings: Settings) -> LoadedModel:
    from .failures import explain_load_failures
    from .logs import LoggedProgress
    from .progress import report_progress

    reporting = nullcontext(LoggedProgress()) if settings.log_format == "json" else report_progress()
    with reporting as progress, explain_load_failures(args.model):
        from vllm_mlx_core.engine import kernel_folder
        from vllm_mlx_core.residency.loader import load_model

        kernel_folder.keep_private()
        return load_model(args.model, host, settings, options.load_options(args, progress))


def _banner(args: Namespace, settings: Settings, loaded: LoadedModel, app: FastAPI, listener: socket.socket) -> str:
    from vllm_mlx_core.engine.amounts import format_bytes
    from vllm_mlx_core.server.host_check import is_loopback

    from .banner import Banner

    limit = settings.engine.cache_memory_bytes
    reason = loaded.ready.mode_reason or ("self-test passed" if settings.engine.self_test else "not tested")
    if loaded.ready.captured:
        reason += ", decode steps captured"
    return Banner(
        model=loaded.info,
        weights_bytes=loaded.ready.nbytes,
        parsers_reason=loaded.parsers.reason,
        cache=loaded.cache if limit is None else f"{loaded.cache}, at most {format_bytes(limit)}",
        batching=f"{loaded.ready.mode} ({reason})",
        url=_url(settings, listener),
        socket_path=settings.uds,
        needs_key=bool(settings.api_keys),
        open_to_network=settings.uds is None and not is_loopback(settings.host),
        chat_path=CHAT_PATH if _accepts_posts(app, CHAT_PATH) else None,
        demonstration=args.model is None,
    ).render()


def _url(settings: Settings, listener: socket.socket) -> str:
    from .banner import client_url

    scheme = "http" if settings.ssl_certfile is None else "https"
    if settings.uds is not None:
        return f"{scheme}://localhost"
    return client_url(settings.host, listener.getsockname()[1], scheme)


def _accepts_posts(app: FastAPI, path: str) -> bool:
    from starlette.routing import Match

    scope = {"type": "http", "method": "POST", "path": path, "root_path": "", "headers": []}
    return any(route.matches(scope)[0] is Match.FULL for route in app.routes)
