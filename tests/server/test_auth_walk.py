"""Every route of every installed protocol, every method and many spellings: without a key nothing but health."""

from __future__ import annotations

import pytest

from vllm_mlx_core.api import ApiKey, Settings
from vllm_mlx_core.host import Host
from vllm_mlx_core.server import create_app
from vllm_mlx_core.testing.protocols import connect

pytestmark = pytest.mark.anyio
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "BREW")
ORIGIN = "http://localhost:3000"


@pytest.fixture(scope="module")
def app():
    """The application of everything that is installed, with every option that stands before the key check."""
    from vllm_mlx_core.testing.protocols import ScriptedEngine

    host = Host()
    host.load()
    settings = Settings(api_keys=[ApiKey("right", "alice")], cors_origins=[ORIGIN], rate_limit=100_000)
    return create_app(ScriptedEngine(), host, settings)


def routes(app):
    """The path of every route, those that no document lists included, with something in place of its parameters."""
    paths = {getattr(route, "path", "") for route in app.routes} | set(app.openapi()["paths"]) | app.state.paths
    filled = {path.replace("{", "").replace("}", "").replace(":path", "") for path in paths}
    return sorted(filled - {"", "/health"})


def spellings(path):
    yield path
    yield path + "/"
    yield "/" + path
    yield path.replace("/", "//")
    yield path.upper()
    yield path.title()
    yield path.replace("/", "/./")
    yield "/health/.." + path
    yield "/health/%2e%2e" + path
    yield "/health;" + path
    yield path + "?x=/health"
    yield path + "%2f"
    yield path + "%00"
    yield path + "%20"
    yield path[0] + f"%{ord(path[1]):02x}" + path[2:] if len(path) > 1 else "/%2e"
    yield path.replace("/", "%2f")
    yield path.replace("/", "\\")


async def test_the_walk_meets_the_routes_of_the_protocols(app):
    found = routes(app)
    assert {"/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/models/model", "/openapi.json"} <= set(found)
    assert app.state.paths - {"/health"}


async def test_without_a_key_every_route_method_and_spelling_is_refused(app):
    async with connect(app) as client:
        for path in [*routes(app), "/", "/metrics", "/docs", "/redoc", "/ready", "/health/", "/HEALTH", "/health%20"]:
            for spelling in spellings(path):
                target = spelling if spelling.startswith("/") else "/" + spelling
                for method in METHODS:
                    answer = await client.request(method, f"http://localhost{target}", content=b"{}")
                    assert answer.status_code == 401, (method, target)


async def test_the_raw_path_decides_nothing(app):
    """A server may hand on a path that differs from its raw form."""
    statuses = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    for path, raw, root in (
        ("/v1/models", b"/health", ""),
        ("/health/v1/models", b"/health", "/health"),
        ("/health", b"/v1/models", "/v1"),
    ):
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": raw,
            "root_path": root,
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }
        await app(scope, receive, send)
    assert statuses == [401, 401, 401]


@pytest.mark.parametrize("path", ["/health", "/v1/chat/completions", "/v1/realtime", "/"])
async def test_a_websocket_is_closed_wherever_it_leads(app, path):
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    scope = {"type": "websocket", "path": path, "headers": [(b"host", b"localhost")], "query_string": b""}
    await app(scope, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_a_preflight_is_answered_and_nothing_is_done(app):
    preflight = {"origin": ORIGIN, "access-control-request-method": "DELETE"}
    async with connect(app) as client:
        for path in routes(app):
            answer = await client.options(path, headers=preflight)
            assert (answer.status_code, answer.text) == (200, "OK")
            assert (await client.delete(path, headers=preflight)).status_code == 401


async def test_health_is_open_and_a_key_opens_the_rest(app):
    async with connect(app) as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.head("/health")).status_code == 200
        assert (await client.get("/v1/models", headers={"x-api-key": "right"})).status_code == 200
        assert (await client.get("/v1/models", headers={"x-api-key": "alice:right"})).status_code == 401
        assert (await client.get("/v1/models", headers={"x-api-key": "alice"})).status_code == 401
