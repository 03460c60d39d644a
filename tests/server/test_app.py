from __future__ import annotations

from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest
from fastapi import APIRouter
from starlette.responses import JSONResponse, PlainTextResponse

from vllm_mlx_core.api import PluginError, ProtocolFrontend, Settings, hookimpl
from vllm_mlx_core.host import Host
from vllm_mlx_core.server import assemble, create_app
from vllm_mlx_core.testing.protocols import connect

LIVES: list[str] = []
SEEN: list[str] = []


class First(ProtocolFrontend):
    paths: ClassVar[tuple[str, ...]] = ("/first", "/shared")

    def router(self):
        router = APIRouter()

        @router.get("/first/hello")
        async def hello() -> PlainTextResponse:
            return PlainTextResponse("first")

        return router

    def render_error(self, error):
        return JSONResponse({"first": error.message}, error.status)

    @asynccontextmanager
    async def lifespan(self):
        LIVES.append("up")
        yield
        LIVES.append("down")


class Second(First):
    paths = ("/shared/deep",)


class Broken(First):
    paths = ("/broken",)

    def router(self):
        return APIRouter()

    def render_error(self, error):
        raise RuntimeError("cannot")


class Unmade(First):
    def __init__(self, engine, settings):
        raise RuntimeError("no luck")


class Unrouted(First):
    def router(self):
        raise RuntimeError("no luck")


class Routeless(First):
    def router(self):
        return None


class Watch:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        SEEN.append(scope["path"])
        await self.app(scope, receive, send)


class Plugin:
    @hookimpl
    def vllm_mlx_mount(self, app):
        @app.get("/mine")
        async def mine() -> PlainTextResponse:
            return PlainTextResponse("mine")

        app.add_middleware(Watch)


PLUGIN = Plugin()


def host(**targets):
    host = Host([EntryPoint(name, f"{__name__}:{kind}", "vllm_mlx.protocols") for name, kind in targets.items()])
    host.load()
    return host


@pytest.mark.anyio
async def test_all_registered_front_ends_are_served_unless_some_are_named(engine):
    app = create_app(engine, host(one="First", other="Broken"), Settings())
    assert "/first/hello" in app.openapi()["paths"]
    assert app.state.paths == {"/first/hello"}
    app = create_app(engine, host(one="First", other="Broken"), Settings(protocols=["other"]))
    assert "/first/hello" not in app.openapi()["paths"]


def test_a_front_end_that_was_only_found_may_fail_and_one_that_was_asked_for_may_not(engine, caplog):
    broken = host(one="First", bad="Missing")
    app = create_app(engine, broken, Settings())
    assert "/first/hello" in app.openapi()["paths"]
    assert "'bad'" in caplog.text
    with pytest.raises(PluginError):
        create_app(engine, broken, Settings(protocols=["bad"]))
    with pytest.raises(PluginError):
        create_app(engine, broken, Settings(protocols=["nope"]))


@pytest.mark.parametrize("kind", ["Unmade", "Unrouted", "Routeless"])
def test_a_front_end_that_cannot_be_used_is_named_in_one_line(engine, caplog, kind):
    broken = host(one="Second", bad=kind)
    app = create_app(engine, broken, Settings())
    assert "/first/hello" in app.openapi()["paths"]
    assert "The protocol 'bad' cannot be used: " in caplog.text
    assert "Traceback" not in caplog.text
    with pytest.raises(PluginError, match=r"^The protocol 'bad' cannot be used: .+$"):
        create_app(engine, broken, Settings(protocols=["bad"]))


def test_two_front_ends_cannot_serve_one_route(engine):
    with pytest.raises(PluginError, match="GET /first/hello"):
        assemble(engine, [First(engine, Settings()), Second(engine, Settings())], Settings())


@pytest.mark.anyio
async def test_the_front_end_with_the_longest_path_renders_the_error(engine):
    class Deep(Broken):
        paths = ("/shared/deep",)

        def render_error(self, error):
            return JSONResponse({"deep": error.message}, error.status)

    app = assemble(engine, [First(engine, Settings()), Deep(engine, Settings())], Settings())
    async with connect(app) as client:
        for path, shape in (
            ("/first/x", "first"),
            ("/shared/x", "first"),
            ("/shared/deepest", "first"),
            ("/shared/deep", "deep"),
            ("/shared/deep/x", "deep"),
            ("/firsthand", "error"),
            ("/", "error"),
        ):
            response = await client.get(path)
            assert response.status_code == 404
            assert list(response.json()) == [shape], path


@pytest.mark.anyio
async def test_a_front_end_that_cannot_render_does_not_hide_the_status(engine):
    app = assemble(engine, [Broken(engine, Settings())], Settings())
    async with connect(app) as client:
        response = await client.get("/broken/x")
    assert response.status_code == 404
    assert "cannot" not in response.text


@pytest.mark.anyio
async def test_lifespans_are_entered_and_left_and_plugins_told(engine):
    LIVES.clear()
    app = assemble(engine, [First(engine, Settings())], Settings(), stopped=lambda: LIVES.append("stopped"))
    async with app.router.lifespan_context(app):
        assert LIVES == ["up"]
    assert LIVES == ["up", "down", "stopped"]


@pytest.mark.anyio
async def test_what_plugins_mount_stays_behind_authentication(engine):
    SEEN.clear()
    the_host = Host([EntryPoint("mine", f"{__name__}:PLUGIN", "vllm_mlx")])
    the_host.load()
    app = create_app(engine, the_host, Settings(api_keys=["k"]))
    async with connect(app) as client:
        assert (await client.get("/mine")).status_code == 401
        assert not SEEN
        assert (await client.get("/mine", headers={"x-api-key": "k"})).text == "mine"
        assert SEEN == ["/mine"]


@pytest.mark.anyio
async def test_health_says_what_the_engine_says(engine):
    async with connect(assemble(engine, [], Settings())) as client:
        response = await client.get("/health")
        assert (response.status_code, response.json()["status"]) == (200, "ok")
        engine.status = "error"
        assert (await client.get("/health")).status_code == 503
