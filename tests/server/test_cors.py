from __future__ import annotations

import pytest

from vllm_mlx_core.testing.protocols import connect

pytestmark = pytest.mark.anyio
ORIGIN = "http://localhost:3000"
PREFLIGHT = {
    "origin": ORIGIN,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type",
}
ALLOWED = "access-control-allow-origin"


async def test_without_the_option_no_page_may_read_anything_and_a_preflight_needs_a_key(make_app):
    async with connect(make_app(api_keys=["k"])) as client:
        assert (await client.options("/plain/whole", headers=PREFLIGHT)).status_code == 401
        answer = await client.get("/health", headers={"origin": ORIGIN})
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_preflight_is_answered_without_a_key_and_opens_nothing_else(make_app, engine):
    async with connect(make_app(api_keys=["k"], cors_origins=[ORIGIN])) as client:
        preflight = await client.options("/plain/whole", headers=PREFLIGHT)
        assert preflight.status_code == 200
        assert preflight.headers[ALLOWED] == ORIGIN
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
        assert "access-control-allow-credentials" not in preflight.headers
        for method in ("OPTIONS", "GET", "POST", "PUT"):
            answer = await client.request(method, "/plain/whole", headers={"origin": ORIGIN})
            assert answer.status_code == 401
        smuggled = await client.post("/plain/whole", json={"text": "x"}, headers=PREFLIGHT)
        assert smuggled.status_code == 401
    assert not engine.requests


async def test_every_error_can_be_read_by_the_page(make_app):
    async with connect(make_app(api_keys=["k"], cors_origins=[ORIGIN], rate_limit=4, max_body_bytes=20)) as client:
        key = {"origin": ORIGIN, "x-api-key": "k"}
        answers = [
            await client.get("/plain/whole", headers={"origin": ORIGIN}),
            await client.get("/health", headers={"origin": ORIGIN, "host": "evil.example"}),
            await client.get("/nowhere", headers=key),
            await client.post("/plain/whole", json={"text": "x" * 100}, headers=key),
            await client.get("/plain/crash", headers=key),
            await client.post("/plain/whole", json={}, headers=key),
            await client.get("/plain/whole", headers=key),
        ]
    assert [answer.status_code for answer in answers] == [401, 400, 404, 413, 500, 400, 429]
    for answer in answers:
        assert answer.headers[ALLOWED] == ORIGIN
        assert "X-Request-Id" in answer.headers["access-control-expose-headers"]


async def test_other_origins_are_not_allowed(make_app):
    async with connect(make_app(cors_origins=[ORIGIN])) as client:
        for origin in ("http://localhost:3001", "https://localhost:3000", "null", ORIGIN + ".evil.example"):
            assert ALLOWED not in (await client.get("/health", headers={"origin": origin})).headers
            preflight = await client.options("/plain/whole", headers={**PREFLIGHT, "origin": origin})
            assert ALLOWED not in preflight.headers


async def test_a_star_allows_every_origin(make_app):
    async with connect(make_app(cors_origins=["*"])) as client:
        assert (await client.get("/health", headers={"origin": "https://any.example"})).headers[ALLOWED] == "*"
