from __future__ import annotations

from pathlib import Path

import pytest

from vllm_mlx_core.testing.protocols import connect

pytestmark = pytest.mark.anyio


async def status(app, host):
    async with connect(app) as client:
        return (await client.get("/health", headers={"host": host})).status_code


async def test_allowed_names_are_answered_beside_those_of_loopback(make_app):
    app = make_app(allowed_hosts=["models.example"])
    assert [await status(app, host) for host in ("models.example", "MODELS.example:8000", "localhost:1")] == [200] * 3
    assert [await status(app, host) for host in ("evil.example", "x.models.example", "models.example.evil")] == [
        400
    ] * 3


async def test_a_server_on_the_network_answers_to_any_name_until_some_are_allowed(make_app):
    assert await status(make_app(host="0.0.0.0"), "any.example") == 200
    restricted = make_app(host="0.0.0.0", allowed_hosts=["models.example"])
    assert [await status(restricted, host) for host in ("any.example", "models.example")] == [400, 200]


async def test_a_unix_socket_is_out_of_reach_of_web_pages_and_answers_to_any_name(make_app):
    assert await status(make_app(uds=Path("unused.sock")), "any.example") == 200
    assert await status(make_app(uds=Path("unused.sock"), allowed_hosts=["models.example"]), "any.example") == 400
