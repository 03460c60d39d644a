"""Servers for tests that need models or settings of their own, in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx

from vllm_mlx_core.api import EngineSettings, LoadOptions, Settings
from vllm_mlx_core.host import Host
from vllm_mlx_core.residency.loader import LoadedModel, load_model
from vllm_mlx_core.residency.pool import ModelPool
from vllm_mlx_core.server import bind, create_app, make_server


@contextmanager
def serving(host: Host, *models: LoadedModel, path: str = "/v1", **settings: Any) -> Iterator[httpx.Client]:
    """Serve models from a thread of this process; yield a client of what lies under ``path``."""
    chosen = replace(Settings(port=0), **settings)
    listener = bind(chosen)
    port = listener.getsockname()[1]
    pool = ModelPool(list(models))
    ready = threading.Event()
    server = make_server(create_app(pool, host, chosen, background=pool.background), chosen, ready=ready.set)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        assert ready.wait(60)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}{path}", timeout=60) as client:
            yield client
    finally:
        server.handle_exit(15, None)
        thread.join(60)
        pool.close()
    assert not thread.is_alive(), "the server does not stop"


def load(host: Host, reference: str, name: str, tool_parser: str, reasoning_parser: str) -> LoadedModel:
    """Load a model to be served under ``name``."""
    settings = Settings(
        served_model_name=name,
        tool_parser=tool_parser,
        reasoning_parser=reasoning_parser,
        engine=EngineSettings(self_test=False, enforce_eager=True),
    )
    return load_model(reference, host, settings, LoadOptions())
