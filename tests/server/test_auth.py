from __future__ import annotations

import pytest

from vllm_mlx_core.api import Settings
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import connect, text_reply
from vllm_mlx_protocols.openai import OpenAIFrontend

pytestmark = pytest.mark.anyio
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE")
KEYS = ("right", "also-right")


@pytest.fixture
def app(engine):
    settings = Settings(api_keys=KEYS)
    return assemble(engine, [OpenAIFrontend(engine, settings)], settings)


def spellings(path):
    yield path
    yield path + "/"
    yield path.upper()
    yield "/" + path
    yield path.removeprefix("/v1") or "/"
    yield path.replace("/", "/./")
    yield "/health/.." + path
    yield path + "?x=/health"
    yield path + "%2f"


async def test_no_spelling_of_any_route_gets_in_without_a_key(app, engine):
    routes = set(app.openapi()["paths"]) | {"/openapi.json", "/docs", "/redoc", "/metrics", "/"}
    assert {"/v1/chat/completions", "/v1/models/{model}"} <= routes
    async with connect(app) as client:
        for path in routes - {"/health"}:
            for spelling in spellings(path):
                for method in METHODS:
                    response = await client.request(method, spelling, json={"prompt": "x", "messages": []})
                    assert response.status_code == 401, (method, spelling)
                    assert response.headers["www-authenticate"] == "Bearer"
    assert not engine.requests


async def test_health_is_open_but_only_under_its_exact_name(app):
    async with connect(app) as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.head("/health")).status_code == 200
        for method, path in (("POST", "/health"), ("OPTIONS", "/health"), ("GET", "/health/"), ("GET", "/HEALTH")):
            assert (await client.request(method, path)).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer right"},
        {"authorization": "bearer  also-right "},
        {"x-api-key": "right"},
        {"authorization": "Basic eDp5", "x-api-key": "right"},
    ],
)
async def test_either_header_and_any_of_the_keys_is_good(app, headers):
    async with connect(app) as client:
        assert (await client.get("/v1/models", headers=headers)).status_code == 200


@pytest.mark.parametrize("value", ["Bearer wrong", "right", "Bearer", "Bearer ", "Basic right", "Bearer right x"])
async def test_wrong_keys_are_refused_in_the_protocols_shape(app, value):
    async with connect(app) as client:
        response = await client.get("/v1/models", headers={"authorization": value})
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert "right" not in response.text


async def test_the_engine_learns_the_number_of_the_key_and_not_the_key(app, engine):
    engine.reply = text_reply("x")
    async with connect(app) as client:
        await client.post("/v1/completions", json={"prompt": "x"}, headers={"x-api-key": "also-right"})
    assert [request.user for request in engine.requests] == ["key-2"]


async def test_the_description_says_that_a_key_is_needed(app, engine):
    document = app.openapi()
    assert document["security"] == [{"bearer": []}, {"x-api-key": []}]
    assert set(document["components"]["securitySchemes"]) == {"bearer", "x-api-key"}
    assert document["paths"]["/health"]["get"]["security"] == []
    assert document["paths"]["/v1/models"]["get"]["responses"]["4XX"]["content"]
    open_app = assemble(engine, [OpenAIFrontend(engine, Settings())], Settings())
    assert "security" not in open_app.openapi()


async def test_a_websocket_without_a_key_is_closed(app):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/v1/realtime", "headers": [(b"host", b"localhost")], "query_string": b""}
    await app(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]
