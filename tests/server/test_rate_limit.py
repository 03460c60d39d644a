from __future__ import annotations

import pytest

from vllm_mlx_core.api import RateLimited
from vllm_mlx_core.server import rate_limit
from vllm_mlx_core.server.rate_limit import Meter, RateLimit
from vllm_mlx_core.testing.protocols import connect

ASKED = {"text": "x"}


async def receive():
    raise AssertionError("nothing is read")


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_a_minutes_worth_is_free_at_once_then_one_comes_back_at_a_time(clock):
    meter = Meter(6, clock=clock)
    assert [meter.count("a") for _ in range(8)] == [0, 0, 0, 0, 0, 0, 10, 10]
    clock.now += 9.5
    assert meter.count("a") == 1
    clock.now += 0.5
    assert (meter.count("a"), meter.count("a")) == (0, 10)
    assert meter.count("b") == 0


@pytest.mark.parametrize("limit", [1, 7, 60, 1000, 99_991])
def test_no_more_than_the_limit_and_what_came_back_is_let_through(clock, limit):
    meter = Meter(limit, clock=clock)
    accepted = 0
    for _ in range(4 * limit if limit <= 1000 else limit + 10):
        accepted += meter.count("a") == 0
    assert accepted == limit
    clock.now += meter.count("a")
    assert meter.count("a") == 0


def test_clients_that_are_quiet_for_a_minute_are_forgotten(clock):
    meter = Meter(2, clock=clock)
    for number in range(100):
        meter.count(str(number))
    assert len(meter) == 100
    clock.now += 60
    meter.count("new")
    assert len(meter) == 1


def test_however_many_clients_come_memory_is_bounded(clock, monkeypatch):
    monkeypatch.setattr(rate_limit, "MAX_CLIENTS", 10)
    meter = Meter(1, clock=clock)
    for number in range(1000):
        assert meter.count(str(number)) == 0
    assert len(meter) == 10
    assert meter.count("999") == 60


@pytest.mark.anyio
async def test_what_is_too_much_is_a_429_that_says_when_to_return(make_app, engine):
    async with connect(make_app(rate_limit=2)) as client:
        answers = [await client.post("/plain/whole", json=ASKED) for _ in range(3)]
        unknown = await client.get("/nowhere")
        health = await client.get("/health")
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 0 < int(answers[2].headers["retry-after"]) <= 30
    assert "2 requests per minute" in answers[2].json()["plain"]
    assert unknown.status_code == 429
    assert health.status_code == 200
    assert len(engine.requests) == 2


@pytest.mark.anyio
async def test_each_key_has_its_own_allowance_and_a_wrong_one_uses_nothing(make_app):
    async with connect(make_app(rate_limit=1, api_keys=["a", "b"])) as client:
        assert (await client.post("/plain/whole", json=ASKED, headers={"x-api-key": "wrong"})).status_code == 401
        statuses = [
            (await client.post("/plain/whole", json=ASKED, headers={"x-api-key": key})).status_code for key in "aab"
        ]
    assert statuses == [200, 429, 200]


async def statuses_of(clients):
    """What a server that allows one request tells each of these addresses, in order."""

    async def app(scope, receive, send):
        pass

    async def send(message):
        raise AssertionError("nothing is sent")

    limited = RateLimit(app, 1)
    answers = []
    for client in clients:
        scope = {"type": "http", "path": "/x", "method": "GET", "client": client}
        try:
            await limited(scope, receive, send)
        except RateLimited:
            answers.append(429)
        else:
            answers.append(200)
    return answers


@pytest.mark.anyio
async def test_addresses_are_told_apart_and_those_of_one_ipv6_network_are_one_client():
    assert await statuses_of([("10.0.0.1", 1), ("10.0.0.1", 2), ("10.0.0.2", 1)]) == [200, 429, 200]
    same, other = [("2001:db8::1", 1), ("2001:db8::2", 1)], [("2001:db8:0:1::1", 1)]
    assert await statuses_of([*same, *other]) == [200, 429, 200]
    assert await statuses_of([("::ffff:10.0.0.1", 1), ("::ffff:10.0.0.2", 1)]) == [200, 200]
    assert await statuses_of([None, None]) == [200, 429]


@pytest.mark.anyio
async def test_a_websocket_beyond_the_limit_is_closed():
    sent = []

    async def send(message):
        sent.append(message)

    async def app(scope, receive, send):
        sent.append("passed")

    limited = RateLimit(app, 1)
    for _ in range(2):
        await limited({"type": "websocket", "path": "/x", "client": None}, receive, send)
    assert sent == ["passed", {"type": "websocket.close", "code": 1013}]
