"""What operators and readers of the description see."""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import stat
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_mlx_core.api import Settings, UsageError
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import ScriptedEngine, text_reply
from vllm_mlx_protocols import hooks
from vllm_mlx_protocols.batches.frontend import BatchesFrontend
from vllm_mlx_protocols.batches.options import add_options, open_database
from vllm_mlx_protocols.responses import options as responses

from .batching import CHAT, line, serving

pytestmark = pytest.mark.anyio
OPENERS: dict[str, Any] = {"batches": open_database, "responses": responses.open_store}


@pytest.fixture(params=OPENERS)
def kind(request):
    return request.param


@pytest.mark.parametrize("content", [None, b"this is no database at all, but long enough to be looked at"])
async def test_a_named_file_that_cannot_be_used_is_the_operators_fault(tmp_path, kind, content):
    path = tmp_path / "named.db"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be used"):
        hooks.vllm_mlx_configure(Settings(plugin_options={f"{kind}_db": str(path)}))


async def test_without_a_usable_state_directory_the_server_starts_and_says_what_is_lost(tmp_path, kind, caplog):
    (tmp_path / "state").write_text("no folder")
    settings = Settings(state_dir=tmp_path / "state")
    hooks.vllm_mlx_configure(settings)
    OPENERS[kind](settings).close()
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert kind in warning.getMessage()
    assert "kept in memory only" in warning.getMessage()
    assert str(tmp_path / "state") in warning.getMessage()


async def test_batches_are_answered_without_a_usable_state_directory(tmp_path):
    (tmp_path / "state").write_text("no folder")
    async with serving(ScriptedEngine(text_reply("x")), state_dir=tmp_path / "state") as client:
        assert (await client.run([line("a")]))["status"] == "completed"


async def test_a_damaged_file_keeps_nobody_from_starting(tmp_path, caplog):
    path = tmp_path / "batches.db"
    async with serving(ScriptedEngine(text_reply("x")), state_dir=tmp_path) as client:
        await client.run([line(str(number), "x" * 500) for number in range(100)])
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + bytes(range(256)) * (len(whole) // 256 - 32))
    async with serving(ScriptedEngine(text_reply("x")), state_dir=tmp_path) as client:
        status, _ = await client.error("GET", "/batches")
    assert status == 500
    assert str(path) in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_file_with_other_tables_is_left_as_it_is(tmp_path, caplog):
    path = tmp_path / "batches.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TABLE batches (id TEXT); PRAGMA user_version = 7")
    async with serving(ScriptedEngine(text_reply("x")), state_dir=tmp_path) as client:
        assert (await client.run([line("a")]))["status"] == "completed"
    assert "another version of this program made it" in caplog.text
    with closing(sqlite3.connect(path)) as db:
        assert [row[0] for row in db.execute("SELECT name FROM sqlite_schema")] == ["batches"]
    with pytest.raises(UsageError, match="another version"):
        hooks.vllm_mlx_configure(Settings(plugin_options={"batches_db": str(path)}))


async def test_an_upload_that_the_disk_has_no_room_for_is_not_begun(tmp_path, monkeypatch):
    async with serving(ScriptedEngine(), state_dir=tmp_path) as client:
        monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=2**24 + 1500))
        await client.upload(b"x" * 700)
        status, error = await client.error("POST", "/files", files={"file": b"x" * 800}, data={"purpose": "batch"})
        assert (status, error["param"], error["code"]) == (413, "file", "storage_full")
        assert len((await client.get("/files"))["data"]) == 1


async def test_a_lock_that_cannot_be_had_is_a_database_that_cannot_be_used(tmp_path, kind):
    (tmp_path / "named.db.servers").write_text("no folder")
    with pytest.raises(UsageError, match="cannot be used"):
        hooks.vllm_mlx_configure(Settings(plugin_options={f"{kind}_db": str(tmp_path / "named.db")}))


async def test_others_cannot_read_the_file(tmp_path):
    engine = ScriptedEngine(text_reply("x"))
    async with serving(engine, state_dir=tmp_path) as client:
        await client.run([line("a")])
        files = [each for each in tmp_path.rglob("*") if each.is_file()]
        assert tmp_path / "batches.db" in files
        assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}


async def test_a_deleted_file_is_gone_from_the_disk(tmp_path):
    async with serving(ScriptedEngine(), plugin_options={"batches_db": str(tmp_path / "own.db")}) as client:
        file = await client.upload(b"wombat" * 100_000)
        await client.ask("DELETE", f"/files/{file['id']}")
    assert b"wombat" not in (tmp_path / "own.db").read_bytes()


async def test_the_options_are_checked(capsys):
    parser = argparse.ArgumentParser()
    add_options(parser)
    options = parser.parse_args(["--batches-db", "x", "--batches-max-mb", "0.5"])
    assert vars(options) == {"batches_db": "x", "batches_max_age_days": 30.0, "batches_max_mb": 0.5}
    for wrong in (["--batches-db="], ["--batches-max-mb=0"], ["--batches-max-age-days=inf"], ["--batches-max-mb=x"]):
        with pytest.raises(SystemExit):
            parser.parse_args(wrong)
    assert "not a number above 0" in capsys.readouterr().err


async def test_the_description_says_how_to_upload(tmp_path):
    engine, settings = ScriptedEngine(), Settings()
    paths = assemble(engine, [BatchesFrontend(engine, settings)], settings).openapi()["paths"]
    form = paths["/v1/files"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["required"] == ["file", "purpose"]
    assert form["properties"]["file"]["format"] == "binary"
    assert "application/octet-stream" in paths["/v1/files/{file_id}/content"]["get"]["responses"]["200"]["content"]
    body = paths["/v1/batches"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["$ref"].endswith("/BatchRequest")
    operations = {(path, method) for path, methods in paths.items() for method in methods if path.startswith("/v1")}
    assert len(operations) == 9
    assert all(path.startswith(BatchesFrontend.paths) for path, _ in operations)


@pytest.mark.parametrize("path", ["/files/a/b", "/batches/a/b", "/files", "/batches"])
async def test_errors_of_the_server_are_in_openais_envelope(path):
    async with serving(ScriptedEngine(), api_keys=["right"], key="right") as client:
        assert (await client.error("PATCH", path))[0] in (404, 405)
        client.headers = {}
        assert (await client.error("GET", path))[0] == 401


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff"])
async def test_a_body_that_is_no_object_is_the_clients_fault(content):
    async with serving(ScriptedEngine()) as client:
        headers = {"content-type": "application/json"}
        assert (await client.http.post("/v1/batches", content=content, headers=headers)).status_code == 400


async def test_nothing_is_left_running_when_the_server_stops():
    gate = asyncio.Event()
    engine = ScriptedEngine(lambda request: [gate])
    before = asyncio.all_tasks()
    async with serving(engine) as client:
        await client.begin([line(str(number)) for number in range(20)], CHAT)
        while len(engine.streams) < 8:
            await client.get("/batches")
    assert asyncio.all_tasks() == before
    assert all(stream.closed.is_set() for stream in engine.streams)
