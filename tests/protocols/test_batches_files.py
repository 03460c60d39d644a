from __future__ import annotations

import pytest

from vllm_mlx_core.testing.protocols import ScriptedEngine
from vllm_mlx_protocols.batches import limits

from .batching import DAY_S, KEYS, Client, Clock, jsonl, line, serving

pytestmark = pytest.mark.anyio
EXPIRY = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def client(clock):
    async with serving(ScriptedEngine(), clock=clock) as client:
        yield client


async def test_a_file_has_every_field_clients_want_and_comes_back_as_it_was(client, clock):
    content = bytes(range(256)) * 5000  # more than one piece, and no text
    file = await client.upload(content, name="lines.jsonl")
    assert file == {
        "id": file["id"],
        "object": "file",
        "bytes": len(content),
        "created_at": int(clock.now),
        "expires_at": int(clock.now) + 30 * DAY_S,
        "filename": "lines.jsonl",
        "purpose": "batch",
        "status": "processed",
        "status_details": None,
    }
    assert file["id"].startswith("file-")
    assert await client.get(f"/files/{file['id']}") == file
    response = await client.ask("GET", f"/files/{file['id']}/content")
    assert response.content == content
    assert response.headers["content-length"] == str(len(content))
    assert response.headers["content-disposition"] == "attachment"


async def test_an_empty_file_is_one(client):
    file = await client.upload(b"")
    assert await client.content(file["id"]) == b""


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\in.jsonl", "in.jsonl"),
        ("日本 👩‍👩‍👧.jsonl".replace("\u200d", ""), "日本 👩👩👧.jsonl"),
        ("x" * 1000, "x" * 255),
        ("/", "file"),
    ],
)
async def test_a_name_is_only_its_last_part(client, given, kept):
    assert (await client.upload(b"x", name=given))["filename"] == kept


async def test_a_deleted_file_is_gone(client):
    file = await client.upload(b"x")
    response = await client.ask("DELETE", f"/files/{file['id']}")
    assert response.json() == {"id": file["id"], "object": "file", "deleted": True}
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/content")):
        status, error = await client.error(method, f"/files/{file['id']}{path}")
        assert (status, error["param"]) == (404, "id")
        assert file["id"] in error["message"]


async def test_a_list_is_walked_in_both_directions(client, clock):
    ids = []
    for _ in range(5):
        ids.append((await client.upload(b"x"))["id"])
        clock.now += len(ids) % 2  # some of one second
    assert [file["id"] for file in (await client.get("/files"))["data"]] == ids[::-1]
    for order, wanted in (("asc", ids), ("desc", ids[::-1])):
        walked: list[str] = []
        after: dict[str, str] = {}
        while True:
            page = await client.get("/files", order=order, limit=2, **after)
            walked += [file["id"] for file in page["data"]]
            assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
            if not page["has_more"]:
                break
            after = {"after": page["last_id"]}
        assert walked == wanted


async def test_a_list_can_be_of_one_purpose(client):
    batch = await client.run([line("a", temperature=9)])
    uploads = await client.get("/files", purpose="batch")
    results = await client.get("/files", purpose="batch_output")
    assert [file["id"] for file in uploads["data"]] == [batch["input_file_id"]]
    assert [file["id"] for file in results["data"]] == [batch["error_file_id"]]
    none = await client.get("/files", purpose="vision")
    assert none == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


@pytest.mark.parametrize("params", [{"limit": "0"}, {"limit": "10001"}, {"order": "up"}, {"after": "file-nope"}])
async def test_a_list_that_cannot_be_is_refused_by_name(client, params):
    status, error = await client.error("GET", "/files", params=params)
    assert (status, error["param"]) == (400, next(iter(params)))


async def test_files_expire_when_their_client_says(client, clock):
    file, other = await client.upload(b"x", **EXPIRY), await client.upload(b"y")
    assert file["expires_at"] == clock.now + 3600
    clock.now += 3599
    assert await client.content(file["id"]) == b"x"
    clock.now += 1
    assert (await client.error("GET", f"/files/{file['id']}"))[0] == 404
    assert [each["id"] for each in (await client.get("/files"))["data"]] == [other["id"]]


async def test_the_operator_limits_how_long_files_are_kept(clock):
    async with serving(ScriptedEngine(), clock=clock, plugin_options={"batches_max_age_days": 0.01}) as client:
        assert (await client.upload(b"x"))["expires_at"] == clock.now + 864
        assert (await client.upload(b"x", **EXPIRY))["expires_at"] == clock.now + 864


FILE = {"files": {"file": ("a", b"x")}}


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"data": {"purpose": "batch"}}, "file"),
        ({"data": {"purpose": "batch", "file": "a text"}}, "file"),
        ({"json": {"purpose": "batch"}}, "purpose"),
        (FILE, "purpose"),
        ({**FILE, "data": {"purpose": "fine-tune"}}, "purpose"),
        ({"files": {"file": ("a", b"x"), "purpose": ("b", b"batch")}}, None),
        ({**FILE, "data": {"purpose": "batch", "expires_after[seconds]": "3600"}}, "expires_after.anchor"),
        ({**FILE, "data": {"purpose": "batch", **EXPIRY, "expires_after[seconds]": "3599"}}, "expires_after.seconds"),
        ({**FILE, "data": {"purpose": "batch", **EXPIRY, "expires_after[seconds]": "9" * 50}}, "expires_after.seconds"),
        ({**FILE, "data": {"purpose": "batch", **EXPIRY, "expires_after[anchor]": "now"}}, "expires_after.anchor"),
        ({**FILE, "data": {"purpose": "batch", "expires_after": '{"anchor": "created_at"}'}}, "expires_after"),
        ({**FILE, "data": {"purpose": "batch", **{str(number): "x" for number in range(20)}}}, None),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, None),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data; boundary=x"}}, None),
    ],
)
async def test_an_upload_that_cannot_be_honoured_is_refused_by_name(client, form, param):
    response = await client.http.post("/v1/files", **form)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param), response.text
    assert (await client.get("/files"))["data"] == []


async def test_there_is_an_end_to_how_much_is_kept_and_what_has_expired_goes_first(clock):
    async with serving(ScriptedEngine(), clock=clock, plugin_options={"batches_max_mb": 0.001}) as client:
        await client.upload(b"x" * 600, **EXPIRY)
        kept = await client.upload(b"y" * 400)
        form = {"files": {"file": ("a", b"z" * 500)}, "data": {"purpose": "batch"}}
        status, error = await client.error("POST", "/files", **form)
        assert (status, error["param"], error["code"]) == (413, "file", "storage_full")
        assert "1,048 bytes" in error["message"]
        assert len((await client.get("/files"))["data"]) == 2
        clock.now += 3600
        await client.upload(b"z" * 500)
        assert await client.content(kept["id"]) == b"y" * 400


async def test_nobody_has_too_many_files(client, monkeypatch):
    monkeypatch.setattr("vllm_mlx_protocols.batches.files.MAX_FILES", 2)
    ids = [(await client.upload(b"x"))["id"] for _ in range(2)]
    form = {"files": {"file": ("a", b"x")}, "data": {"purpose": "batch"}}
    status, error = await client.error("POST", "/files", **form)
    assert (status, error["code"]) == (400, "too_many_files")
    await client.ask("DELETE", f"/files/{ids[0]}")
    await client.upload(b"x")
    assert limits.MAX_FILES == 10_000


async def test_what_is_anothers_is_not_there(clock):
    async with serving(ScriptedEngine(), clock=clock, api_keys=KEYS, key="key-of-me") as me:
        you = Client(me.http, "key-of-you")
        file = await me.upload(jsonl([line("a", temperature=9)]))
        batch = await me.run([line("b", temperature=9)])
        for path in (
            f"/files/{file['id']}",
            f"/files/{file['id']}/content",
            f"/files/{batch['error_file_id']}/content",
        ):
            assert (await you.error("GET", path))[0] == 404
        assert (await you.error("DELETE", f"/files/{file['id']}"))[0] == 404
        assert (await you.error("GET", "/files", params={"after": file["id"]}))[0] == 400
        assert (await you.get("/files"))["data"] == (await you.get("/batches"))["data"] == []
        assert (await you.error("GET", f"/batches/{batch['id']}"))[0] == 404
        assert (await you.error("POST", f"/batches/{batch['id']}/cancel"))[0] == 404
        assert (await you.error("GET", "/batches", params={"after": batch["id"]}))[0] == 400
        order = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        status, error = await you.error("POST", "/batches", json=order)
        assert (status, error["param"]) == (400, "input_file_id")
        assert await me.content(file["id"])
