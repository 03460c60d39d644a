"""Responses that run on by themselves, and what becomes of those that cannot be stored."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest

from vllm_mlx_core.api import (
    EngineFailed,
    Settings,
)
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import ScriptedEngine, connect, text_reply
from vllm_mlx_protocols.responses.frontend import ResponsesFrontend

from .responses_asking import PATH, ask, error, stream

pytestmark = pytest.mark.anyio


@pytest.fixture
def engine():
    return ScriptedEngine(text_reply("Hello"))


@pytest.fixture
async def client(engine):
    settings = Settings(max_request_tokens=1000)
    async with connect(assemble(engine, [ResponsesFrontend(engine, settings)], settings)) as client:
        yield client


async def poll(client, response_id):
    """Return a background response when it has ended."""
    async with asyncio.timeout(30):
        while (response := (await client.get(f"{PATH}/{response_id}")).json())["status"] == "in_progress":
            await asyncio.sleep(0)
    return response


async def test_a_background_response_runs_on_and_can_be_polled(client, engine):
    go = asyncio.Event()
    engine.reply = [go, *text_reply("Done")]
    answer = await ask(client, background=True)
    assert (answer["status"], answer["output"], answer["background"]) == ("in_progress", [], True)
    assert (await client.get(f"{PATH}/{answer['id']}")).json() == answer
    status, wrong = await error(client, previous_response_id=answer["id"])
    assert (status, wrong["param"]) == (400, "previous_response_id")
    go.set()
    final = await poll(client, answer["id"])
    assert (final["status"], final["output"][0]["content"][0]["text"]) == ("completed", "Done")
    assert engine.streams[0].closed.is_set()
    assert (await client.post(f"{PATH}/{answer['id']}/cancel")).json() == final


@pytest.mark.parametrize("method", ["cancel", "delete"])
async def test_a_background_response_can_be_ended(client, engine, method):
    engine.reply = [*text_reply("Done")[:2], asyncio.Event()]
    path = f"{PATH}/{(await ask(client, background=True))['id']}"
    if method == "cancel":
        assert (await client.post(f"{path}/cancel")).json()["status"] == "cancelled"
        assert (await client.get(path)).json()["status"] == "cancelled"
    else:
        assert (await client.delete(path)).status_code == 200
        assert (await client.get(path)).status_code == 404
    assert engine.streams[0].closed.is_set()


async def test_a_background_response_that_fails_says_so(client, engine):
    engine.reply = [*text_reply("Done")[:2], EngineFailed("It broke.")]
    final = await poll(client, (await ask(client, background=True))["id"])
    assert (final["status"], final["error"]) == ("failed", {"code": "server_error", "message": "It broke."})
    assert final["store"] is True


async def test_a_server_that_stops_ends_its_background_responses(tmp_path):
    engine = ScriptedEngine([asyncio.Event()])
    settings = Settings(state_dir=tmp_path / "state")
    app = assemble(engine, [ResponsesFrontend(engine, settings)], settings)
    async with app.router.lifespan_context(app), connect(app) as client:
        response_id = (await ask(client, background=True))["id"]
    assert engine.streams[0].closed.is_set()
    app = assemble(engine, [ResponsesFrontend(engine, settings)], settings)
    async with app.router.lifespan_context(app), connect(app) as client:
        final = (await client.get(f"{PATH}/{response_id}")).json()
    assert (final["status"], final["error"]["message"]) == ("failed", "The server was stopped.")


async def test_a_server_that_is_asked_to_stop_lets_background_responses_finish(engine):
    go = asyncio.Event()
    engine.reply = [go, *text_reply("Done")]
    frontend = ResponsesFrontend(engine, Settings())
    async with connect(assemble(engine, [frontend], Settings())) as client:
        response_id = (await ask(client, background=True))["id"]
        draining = asyncio.create_task(frontend.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        go.set()
        await draining
        assert (await client.get(f"{PATH}/{response_id}")).json()["status"] == "completed"


@pytest.fixture
async def failing(engine, tmp_path):
    """Return a client, and a function that makes the storage fail and work again."""
    settings = Settings(state_dir=tmp_path)

    def fail(now):
        names = ("responses", "gone") if now else ("gone", "responses")
        with closing(sqlite3.connect(tmp_path / "responses.db")) as db:
            db.execute("ALTER TABLE {} RENAME TO {}".format(*names))

    async with connect(assemble(engine, [ResponsesFrontend(engine, settings)], settings)) as client:
        yield client, fail


async def test_an_answer_that_cannot_be_stored_comes_all_the_same_and_says_so(failing, caplog):
    client, fail = failing
    kept = await ask(client)
    fail(True)
    for answer in (await ask(client), (await stream(client))[-1]["response"]):
        assert (answer["status"], answer["store"]) == ("completed", False)
    for answer in (await client.get(f"{PATH}/{kept['id']}"), await client.delete(f"{PATH}/{kept['id']}")):
        assert answer.status_code == 500
        assert "responses cannot be read or changed" in answer.json()["error"]["message"]
    assert "Traceback" not in caplog.text
    fail(False)
    assert (await client.get(f"{PATH}/{kept['id']}")).json() == kept


async def test_a_damaged_file_keeps_nobody_from_answering(engine, tmp_path):
    settings = Settings(state_dir=tmp_path)
    path = tmp_path / "responses.db"
    app = assemble(engine, [ResponsesFrontend(engine, settings)], settings)
    async with app.router.lifespan_context(app), connect(app) as client:
        await ask(client, input="x" * 50_000)
    path.write_bytes(path.read_bytes()[:4096] + bytes(range(256)) * (path.stat().st_size // 256 - 16))
    app = assemble(engine, [ResponsesFrontend(engine, settings)], settings)
    async with app.router.lifespan_context(app), connect(app) as client:
        assert (await ask(client))["status"] == "completed"


async def test_the_end_of_a_background_response_is_told_even_if_it_cannot_be_stored(failing, engine, monkeypatch):
    monkeypatch.setattr("vllm_mlx_protocols.responses.background.RETRY_S", 0.01)
    go = asyncio.Event()
    engine.reply = [go, *text_reply("Done")]
    client, fail = failing
    response_id = (await ask(client, background=True))["id"]
    fail(True)
    go.set()
    await engine.streams[0].closed.wait()
    fail(False)
    assert (await poll(client, response_id))["status"] == "completed", "it is stored as soon as it can be"
