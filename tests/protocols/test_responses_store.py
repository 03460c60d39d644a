from __future__ import annotations

import argparse
import os
import sqlite3
import stat
from types import SimpleNamespace

import pytest

from vllm_mlx_core.api import Chat, Settings, UsageError
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import ScriptedEngine, connect, text_reply
from vllm_mlx_protocols import hooks
from vllm_mlx_protocols.database import Database, StorageFull, transaction
from vllm_mlx_protocols.responses.frontend import ResponsesFrontend
from vllm_mlx_protocols.responses.options import add_options, open_store
from vllm_mlx_protocols.responses.store import Store

pytestmark = pytest.mark.anyio
DAY = 86_400


def response(number, *, previous=None, status="completed", text=""):
    item = {"id": f"msg_{number}", "type": "message", "content": text}
    return {
        "id": f"resp_{number}",
        "status": status,
        "previous_response_id": previous and f"resp_{previous}",
        "output": [item],
    }


class Clock:
    now = 1_000_000.0

    def __call__(self):
        self.now += 1
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "deep" / "responses.db")


@pytest.fixture
def store(path, clock):
    store = Store(path, max_age_s=DAY, max_bytes=1_000_000, clock=clock)
    yield store
    store.close()


async def test_what_is_stored_survives_a_restart(store, path):
    given = [{"id": "in_1", "content": "Grüße \ud800 日本"}]
    await store.put("me", response(1, text="x"), given)
    store.close()
    store.close()
    again = Store(path, max_age_s=DAY * 365 * 100, max_bytes=1_000_000)
    try:
        assert await again.get("me", "resp_1") == (response(1, text="x"), given)
        assert await again.get("me", "resp_2") is None
    finally:
        again.close()


async def test_only_the_owner_reads_follows_refers_and_deletes(store):
    await store.put("me", response(1), [])
    assert await store.get("you", "resp_1") is None
    assert await store.chain("you", "resp_1") is None
    assert await store.item("you", "msg_1") is None
    assert not await store.delete("you", "resp_1")
    assert await store.item("me", "msg_1") == response(1)["output"][0]
    assert await store.delete("me", "resp_1")
    assert await store.item("me", "msg_1") is None
    assert not await store.delete("me", "resp_1")


async def test_a_chain_comes_oldest_first_and_whole_or_not_at_all(store):
    for number in (1, 2, 3):
        await store.put("me", response(number, previous=number - 1 or None), [])
    assert [each.response["id"] for each in await store.chain("me", "resp_3")] == ["resp_1", "resp_2", "resp_3"]
    await store.delete("me", "resp_2")
    assert await store.chain("me", "resp_3") is None
    assert len(await store.chain("me", "resp_1")) == 1


async def test_a_long_chain_is_followed_to_its_start(store):
    for number in range(1, 301):
        await store.put("me", response(number, previous=number - 1 or None), [])
    assert len(await store.chain("me", "resp_300")) == 300


async def test_a_response_can_be_replaced(store):
    await store.put("me", response(1, status="in_progress"), [])
    await store.put("me", response(1, text="done"), [])
    assert (await store.get("me", "resp_1")).response == response(1, text="done")


async def test_what_was_not_used_for_too_long_is_forgotten(store, clock):
    await store.put("me", response(1), [])
    await store.put("me", response(2), [])
    clock.now += DAY * 0.9
    assert await store.chain("me", "resp_1")
    clock.now += DAY * 0.9
    await store.put("me", response(3), [])
    assert await store.get("me", "resp_1") is not None
    assert await store.get("me", "resp_2") is None


async def test_a_chain_is_followed_even_if_that_cannot_be_noted(store, path):
    await store.put("me", response(1), [])
    with sqlite3.connect(path) as db:
        db.execute("CREATE TRIGGER full BEFORE UPDATE ON responses BEGIN SELECT RAISE(ABORT, 'no room'); END")
    db.close()
    chain = await store.chain("me", "resp_1")
    assert [each.response["id"] for each in chain] == ["resp_1"]


async def test_the_least_recently_used_go_when_there_is_too_much(path, clock):
    store = Store(path, max_age_s=DAY, max_bytes=25_000, clock=clock)
    try:
        await store.put("me", response(1, text="x" * 10_000), [])
        await store.put("me", response(2, text="x" * 10_000), [])
        assert await store.chain("me", "resp_1")
        await store.put("me", response(3, text="x" * 10_000), [])
        kept = [number for number in (1, 2, 3) if await store.get("me", f"resp_{number}") is not None]
        assert kept == [1, 3]
        assert not await store.put("me", response(4, text="x" * 30_000), [])
        assert await store.get("me", "resp_4") is None
        assert await store.get("me", "resp_3") is not None, "what is too large drives out nothing"
        for number in range(5, 60):
            await store.put("me", response(number, text="x" * 10_000), [])
    finally:
        store.close()
    assert os.path.getsize(path) < 200_000


async def test_what_an_earlier_process_left_unfinished_has_failed(store, path, clock):
    await store.put("me", response(1, status="in_progress"), [])
    await store.put("me", response(2), [])
    store.close()
    again = Store(path, max_age_s=DAY, max_bytes=10**6, clock=clock)
    await again.fail_abandoned()
    failed, whole = await again.get("me", "resp_1"), await again.get("me", "resp_2")
    assert failed is not None
    assert (failed.response["status"], failed.response["error"]["code"]) == ("failed", "server_error")
    assert whole is not None
    assert whole.response == response(2)
    again.close()


async def test_what_another_server_makes_is_not_called_left_behind(path):
    running, other = Store(path, max_age_s=DAY, max_bytes=10**6), Store(path, max_age_s=DAY, max_bytes=10**6)
    await running.put("", response(1, status="in_progress"), [])
    await other.fail_abandoned()
    found = await other.get("", "resp_1")
    assert found is not None
    assert found.response["status"] == "in_progress"
    running.close()
    found = await other.get("", "resp_1")
    assert found is not None
    assert found.response["status"] == "failed", "as soon as somebody looks"
    other.close()


async def test_background_responses_that_are_too_large_are_refused_or_have_failed():
    engine = ScriptedEngine(text_reply("x" * 3000))
    settings = Settings(plugin_options={"responses_db": ":memory:", "responses_max_mb": 0.004})
    async with connect(assemble(engine, [ResponsesFrontend(engine, settings)], settings)) as client:
        refused = await client.post("/v1/responses", json={"input": "x" * 5000, "background": True})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "background")
        assert engine.streams[0].closed.is_set()
        response = (await client.post("/v1/responses", json={"input": "x" * 1000, "background": True})).json()
        while response["status"] == "in_progress":
            response = (await client.get(f"/v1/responses/{response['id']}")).json()
    assert response["status"] == "failed"
    assert "larger" in response["error"]["message"]


async def test_what_was_deleted_meanwhile_does_not_come_back(path):
    running, other = Store(path, max_age_s=DAY, max_bytes=10**6), Store(path, max_age_s=DAY, max_bytes=10**6)
    for number in (1, 2):
        await running.put("", response(number, status="in_progress"), [])
    assert await other.delete("", "resp_1")
    for number in (1, 2):
        await running.finish("", response(number), [])
    assert [await other.get("", f"resp_{number}") is None for number in (1, 2)] == [True, False]
    other.close()
    running.close()


async def test_a_change_that_finds_no_room_leaves_none_of_the_log(path):
    database = Database(path, schema="CREATE TABLE IF NOT EXISTS t (x BLOB)", what="things")
    (pages,) = database.connection.execute("PRAGMA page_count").fetchone()
    database.connection.execute(f"PRAGMA max_page_count = {pages + 300}")

    def write():
        with transaction(database.connection):
            for _ in range(400):
                database.connection.execute("INSERT INTO t VALUES (zeroblob(4000))")
                database.connection.execute("PRAGMA cache_spill = 1")

    with pytest.raises(StorageFull):
        await database.run(write)
    assert os.path.getsize(f"{path}-wal") == 0
    database.close()


async def test_a_disk_that_is_found_full_is_said_once(path, monkeypatch, caplog):
    store = Store(path, max_age_s=100, max_bytes=100_000)
    for free, expected in ((2**24, 1), (2**30, 1), (2**24, 2)):
        monkeypatch.setattr("shutil.disk_usage", lambda path, free=free: SimpleNamespace(free=free))
        for number in range(2):
            if free > 2**24:
                assert await store.put("", response(number), [])
                continue
            with pytest.raises(StorageFull):
                await store.put("", response(number), [])
        assert caplog.text.count("no room on the disk for responses") == expected
    store.close()


@pytest.mark.parametrize("exists", [False, True])
def test_others_cannot_read_the_file(tmp_path, exists):
    path = tmp_path / "responses.db"
    if exists:
        path.touch(0o644)
    store = Store(str(path), max_age_s=1, max_bytes=1)
    try:
        for each in tmp_path.iterdir():
            assert stat.S_IMODE(each.stat().st_mode) == (0o700 if each.is_dir() else 0o600), each
    finally:
        store.close()


def test_a_deleted_text_is_gone_from_the_file(tmp_path):
    import asyncio

    path = tmp_path / "responses.db"
    store = Store(str(path), max_age_s=DAY, max_bytes=1_000_000)

    async def put_and_delete():
        await store.put("me", response(1, text="wombat"), [])
        await store.delete("me", "resp_1")

    asyncio.run(put_and_delete())
    store.close()
    assert b"wombat" not in path.read_bytes()


@pytest.mark.parametrize("content", [None, b"this is no database at all, but long enough to be looked at"])
def test_a_file_that_cannot_be_used_is_the_operators_fault(tmp_path, content):
    path = tmp_path / "responses.db"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be used"):
        hooks.vllm_mlx_configure(Settings(plugin_options={"responses_db": str(path)}))


def test_without_a_state_directory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open_store(Settings()).close()
    hooks.vllm_mlx_configure(Settings())
    open_store(Settings(plugin_options={"responses_db": ":memory:"}, state_dir=tmp_path / "state")).close()
    assert list(tmp_path.iterdir()) == []


def test_the_database_is_where_the_operator_wants_it(tmp_path):
    open_store(Settings(state_dir=tmp_path / "state")).close()
    assert (tmp_path / "state" / "responses.db").exists()
    open_store(Settings(state_dir=tmp_path, plugin_options={"responses_db": str(tmp_path / "own.db")})).close()
    assert (tmp_path / "own.db").exists()


def test_the_options_are_checked(capsys):
    parser = argparse.ArgumentParser()
    add_options(parser)
    options = parser.parse_args(["--responses-db", "x", "--responses-max-mb", "0.5"])
    assert vars(options) == {"responses_db": "x", "responses_max_age_days": 30.0, "responses_max_mb": 0.5}
    for wrong in (["--responses-db="], ["--responses-max-mb=0"], ["--responses-max-mb=inf"], ["--responses-max-mb=x"]):
        with pytest.raises(SystemExit):
            parser.parse_args(wrong)
    assert "not a number above 0" in capsys.readouterr().err


async def test_the_bounds_are_the_operators(tmp_path):
    engine = ScriptedEngine(text_reply("Hello"))
    settings = Settings(plugin_options={"responses_db": ":memory:", "responses_max_mb": 0.0001})
    app = assemble(engine, [ResponsesFrontend(engine, settings)], settings)
    async with app.router.lifespan_context(app), connect(app) as client:
        made = (await client.post("/v1/responses", json={"input": "Hi"})).json()
        assert (await client.get(f"/v1/responses/{made['id']}")).status_code == 404


async def test_a_conversation_goes_on_after_a_restart(tmp_path):
    settings = Settings(state_dir=tmp_path)
    fields = {"input": "Hi"}
    for _ in range(3):
        engine = ScriptedEngine(text_reply("Hello"))
        app = assemble(engine, [ResponsesFrontend(engine, settings)], settings)
        async with app.router.lifespan_context(app), connect(app) as client:
            made = (await client.post("/v1/responses", json=fields)).json()
        fields = {"input": "Again", "previous_response_id": made["id"]}
    prompt = engine.requests[0].prompt
    assert isinstance(prompt, Chat)
    assert [message["content"] for message in prompt.messages] == [
        *("Hi", "Hello", "Again", "Hello", "Again"),
    ]
