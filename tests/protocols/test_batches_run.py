from __future__ import annotations

import asyncio
import json

import pytest

from vllm_mlx_core.api import (
    IDLE_PRIORITY,
    EngineFailed,
    EngineSettings,
    Output,
    Overloaded,
    RateLimited,
    RequestCancelled,
    RequestTimedOut,
    Settings,
    TextDelta,
    Usage,
)
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import ScriptedEngine, connect, text_reply
from vllm_mlx_protocols.batches import answering, runner
from vllm_mlx_protocols.batches.frontend import BatchesFrontend
from vllm_mlx_protocols.batches.limits import LINES_IN_FLIGHT
from vllm_mlx_protocols.batches.places import Places

from .batching import CHAT, DAY_S, KEYS, TEXT, Client, Clock, jsonl, line, said, serving

pytestmark = pytest.mark.anyio


def echo(request):
    return text_reply(said(request))


@pytest.fixture
def engine():
    return ScriptedEngine(echo)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def client(engine, clock):
    async with serving(engine, clock=clock) as client:
        yield client


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(answering, "FIRST_PAUSE_S", 0)
    monkeypatch.setattr(runner, "TRY_AGAIN_S", 0)


async def test_a_batch_answers_every_line_in_the_order_of_the_file(client, clock):
    batch = await client.run([line(f"r{number}", f"text {number}") for number in range(30)], metadata={"a": "b"})
    now = int(clock.now)
    assert batch == {
        "id": batch["id"],
        "object": "batch",
        "endpoint": CHAT,
        "model": "default",
        "errors": None,
        "input_file_id": batch["input_file_id"],
        "completion_window": "24h",
        "status": "completed",
        "output_file_id": batch["output_file_id"],
        "error_file_id": None,
        "created_at": now,
        "in_progress_at": now,
        "expires_at": now + DAY_S,
        "finalizing_at": now,
        "completed_at": now,
        "failed_at": None,
        "expired_at": None,
        "cancelling_at": None,
        "cancelled_at": None,
        "request_counts": {"total": 30, "completed": 30, "failed": 0},
        "usage": batch["usage"],
        "metadata": {"a": "b"},
    }
    tokens = sum(len(f"text {number}") + 1 for number in range(30))
    assert batch["usage"] == {
        "input_tokens": 90,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 90 + tokens,
    }
    results = await client.results(batch)
    assert [each["custom_id"] for each in results] == [f"r{number}" for number in range(30)]
    assert await client.texts(batch) == {f"r{number}": f"text {number}" for number in range(30)}
    assert len({each["id"] for each in results}) == 30
    assert results[0]["error"] is None
    assert results[0]["response"]["status_code"] == 200
    assert results[0]["response"]["body"]["object"] == "chat.completion"
    file = await client.get(f"/files/{batch['output_file_id']}")
    assert (file["purpose"], file["filename"]) == ("batch_output", f"{batch['id']}_output.jsonl")
    assert file["bytes"] == len(await client.content(file["id"]))


async def test_completions_are_answered_too(client, engine):
    engine.reply = text_reply("one")
    body = {"model": "default", "prompt": ["a", "b"], "n": 2}
    batch = await client.run([{"custom_id": "x", "method": "POST", "url": TEXT, "body": body}], TEXT)
    (result,) = await client.results(batch)
    assert [choice["text"] for choice in result["response"]["body"]["choices"]] == ["one"] * 4
    assert batch["usage"]["input_tokens"] == 6


async def test_what_is_wrong_with_one_body_is_told_of_its_line_alone(client):
    lines = [
        line("good"),
        line("hot", temperature=9),
        line("streams", stream=True),
        line("lost", model="nope"),
        line("not", messages="x"),
    ]
    batch = await client.run(lines)
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": 5, "completed": 1, "failed": 4}
    assert list(await client.texts(batch)) == ["good"]
    found = {}
    for each in await client.results(batch, "error"):
        assert each["error"] is None
        error = each["response"]["body"]["error"]
        assert list(error) == ["message", "type", "param", "code"]
        found[each["custom_id"]] = (each["response"]["status_code"], error["param"], error["code"])
    assert found == {
        "hot": (400, "temperature", None),
        "streams": (400, "stream", None),
        "lost": (404, "model", "model_not_found"),
        "not": (400, "messages", None),
    }


async def test_a_batch_without_a_good_line_has_no_output(client):
    batch = await client.run([line("a", temperature=9)])
    assert (batch["status"], batch["output_file_id"]) == ("completed", None)
    assert len((await client.get("/files"))["data"]) == 2


async def test_half_characters_and_marks_of_order_do_no_harm(client):
    content = b"\xef\xbb\xbf" + jsonl([line("a", "x\ud83dy"), line("b", "👩 日本")]).replace(b"\n", b"\r\n") + b"\n \n"
    assert await client.texts(await client.run(content)) == {"a": "x\ufffdy", "b": "👩 日本"}


async def test_lines_are_idle_work_of_their_owner_that_can_be_found(engine, clock):
    async with serving(engine, clock=clock, api_keys=KEYS, key="key-of-me") as client:
        clock.now += 0.5
        batch = await client.run([line("a", priority=-5)])
        (request,) = engine.requests
        assert (request.priority, request.user) == (IDLE_PRIORITY, "me")
        assert DAY_S - 1 < request.timeout_s < DAY_S
        (result,) = await client.results(batch)
        assert result["response"]["request_id"] == request.trace_id


@pytest.mark.parametrize(
    ("content", "faults"),
    [
        (b"", [("empty_file", None, None)]),
        (b"\n \n", [("empty_file", None, None)]),
        (b"{\n[]\n\xff\n" + b"[" * 500, [("invalid_json_line", None, number) for number in (1, 2, 3, 4)]),
        (jsonl([{}]), [("missing_required_parameter", "custom_id", 1)]),
        (jsonl([{**line("a"), "custom_id": 5}]), [("invalid_request", "custom_id", 1)]),
        (
            jsonl([line(""), line("x" * 513)]),
            [("invalid_request", "custom_id", 1), ("invalid_request", "custom_id", 2)],
        ),
        (jsonl([{**line("a"), "method": "GET"}]), [("invalid_request", "method", 1)]),
        (jsonl([line("a"), {**line("b"), "url": TEXT}]), [("url_mismatch", "url", 2)]),
        (jsonl([{**line("a"), "body": None}]), [("missing_required_parameter", "body", 1)]),
        (jsonl([{**line("a"), "body": []}]), [("invalid_request", "body", 1)]),
        (jsonl([line("a"), line("b"), line("a")]), [("duplicate_custom_id", "custom_id", 3)]),
        (jsonl([{}] * 200), [("missing_required_parameter", "custom_id", number) for number in range(1, 101)]),
    ],
)
async def test_what_is_wrong_with_the_file_fails_the_batch(client, engine, clock, content, faults):
    batch = await client.run(content)
    assert (batch["status"], batch["failed_at"]) == ("failed", int(clock.now))
    assert (batch["in_progress_at"], batch["finalizing_at"]) == (None, None)
    assert batch["errors"]["object"] == "list"
    found = batch["errors"]["data"]
    assert [(fault["code"], fault["param"], fault["line"]) for fault in found] == faults
    assert all(fault["message"] for fault in found)
    assert (batch["output_file_id"], batch["error_file_id"], engine.requests) == (None, None, [])
    assert [file["purpose"] for file in (await client.get("/files"))["data"]] == ["batch"]


async def test_there_is_an_end_to_lines_and_to_their_length(client, engine, monkeypatch):
    engine.reply = text_reply("x")
    monkeypatch.setattr("vllm_mlx_protocols.batches.lines.MAX_LINES", 3)
    monkeypatch.setattr("vllm_mlx_protocols.batches.lines.MAX_LINE_BYTES", 500_000)
    assert (await client.run([line(str(number)) for number in range(3)]))["status"] == "completed"
    batch = await client.run([line(str(number)) for number in range(10)])
    assert [(fault["code"], fault["line"]) for fault in batch["errors"]["data"]] == [("too_many_tasks", 4)]
    batch = await client.run([line("a", "x" * 900_000), {}, line("b", "x" * 499_999)])
    assert [(fault["code"], fault["line"]) for fault in batch["errors"]["data"]] == [
        ("line_too_long", 1),
        ("missing_required_parameter", 2),
        ("line_too_long", 3),
    ]
    assert (await client.run([line("a", "x" * 400_000), line("b", "y" * 400_000)]))["request_counts"]["completed"] == 2


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"endpoint": "/v1/embeddings"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"input_file_id": "file-nope"}, "input_file_id"),
        ({"input_file_id": None}, "input_file_id"),
        ({"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 5}}, "output_expires_after.seconds"),
    ],
)
async def test_a_batch_that_cannot_be_is_refused_by_name(client, fields, param):
    order = {"input_file_id": (await client.upload(b""))["id"], "endpoint": CHAT, "completion_window": "24h"}
    status, error = await client.error("POST", "/batches", json={**order, **fields})
    assert (status, error["param"]) == (400, param), error
    assert (await client.get("/batches"))["data"] == []


async def test_results_are_no_input(client):
    batch = await client.run([line("a")])
    order = {"input_file_id": batch["output_file_id"], "endpoint": CHAT, "completion_window": "24h"}
    assert (await client.error("POST", "/batches", json=order))[1]["param"] == "input_file_id"


async def test_results_are_kept_as_long_as_the_client_says(client, clock):
    batch = await client.run([line("a")], output_expires_after={"anchor": "created_at", "seconds": 3600})
    assert (await client.get(f"/files/{batch['output_file_id']}"))["expires_at"] == clock.now + 3600
    clock.now += 3600
    assert (await client.error("GET", f"/files/{batch['output_file_id']}/content"))[0] == 404


async def test_batches_are_listed_the_newest_first(client):
    ids = [(await client.run([line("a")]))["id"] for _ in range(3)]
    page = await client.get("/batches", limit=2)
    assert ([batch["id"] for batch in page["data"]], page["has_more"]) == (ids[:0:-1], True)
    page = await client.get("/batches", after=page["last_id"])
    assert ([batch["id"] for batch in page["data"]], page["has_more"]) == (ids[:1], False)
    assert (await client.error("GET", "/batches", params={"after": "batch_nope"}))[1]["param"] == "after"
    assert (await client.error("GET", "/batches/batch_nope"))[0] == 404


async def test_batches_are_forgotten_in_time(client, clock):
    await client.run([line("a")])
    clock.now += 31 * DAY_S
    kept = await client.run([line("a")])
    assert [batch["id"] for batch in (await client.get("/batches"))["data"]] == [kept["id"]]


async def test_few_lines_are_in_flight_and_batches_take_turns(engine, clock):
    gate, most = asyncio.Event(), LINES_IN_FLIGHT
    engine.reply = lambda request: [gate, *text_reply("x")]
    async with serving(engine, clock=clock) as client:
        first = await client.begin([line(f"{number}", "first") for number in range(3 * most)])
        while len(engine.requests) < most:
            await client.get("/batches")
        second = await client.begin([line(f"{number}", "second") for number in range(3 * most)])
        await client.until(second, lambda batch: batch["status"] == "in_progress")
        assert len(engine.requests) == most
        gate.set()
        await client.end(first)
        await client.end(second)
    later = [said(request) for request in engine.requests[most : 3 * most]]
    assert min(later.count("first"), later.count("second")) >= most // 2


async def test_a_small_engine_keeps_places_for_others(clock):
    gate = asyncio.Event()
    engine = ScriptedEngine(lambda request: [gate, *text_reply("x")])
    async with serving(engine, clock=clock, engine=EngineSettings(max_num_seqs=4)) as client:
        batch = await client.begin([line(f"{number}") for number in range(6)])
        while len(engine.requests) < 2:
            await client.get("/batches")
        await client.get("/batches")
        assert len(engine.requests) == 2
        gate.set()
        assert (await client.end(batch))["request_counts"]["completed"] == 6


async def test_a_server_that_is_asked_to_stop_begins_no_line(clock, tmp_path):
    gate = asyncio.Event()
    engine = ScriptedEngine(lambda request: [gate, *text_reply("x")])
    settings = Settings(state_dir=tmp_path)
    frontend = BatchesFrontend(engine, settings, clock=clock)
    app = assemble(engine, [frontend], settings)
    async with app.router.lifespan_context(app), connect(app) as http:
        client = Client(http)
        batch = await client.begin([line(str(number)) for number in range(20)])
        while not engine.requests:
            await client.get("/batches")
        await frontend.drain()
        gate.set()
        asked = len(engine.requests)
        assert all(stream.closed.is_set() for stream in engine.streams)
        assert (await client.get(f"/batches/{batch['id']}"))["request_counts"]["completed"] == 0
        assert len(engine.requests) == asked < 20


async def test_a_line_may_not_want_more_places_than_batches_have(engine, clock):
    small = EngineSettings(max_num_seqs=8, max_queue=8)
    async with serving(engine, clock=clock, engine=small) as client:
        batch = await client.run([line(f"r{place}", n=n) for place, n in enumerate((4, 3, 5, 4, 1))])
        assert [result["custom_id"] for result in await client.results(batch)] == ["r0", "r1", "r3", "r4"]
        (refused,) = await client.results(batch, "error")
        assert refused["response"]["body"]["error"]["param"] == "n"


async def test_lines_take_their_places_as_soon_as_they_are_free_and_in_order(engine, clock, monkeypatch):
    monkeypatch.setattr(answering, "FIRST_PAUSE_S", 10_000)  # would never end
    small = EngineSettings(max_num_seqs=8, max_queue=8)
    async with serving(engine, clock=clock, engine=small) as client:
        batch = await client.run([line(f"r{place}", n=n) for place, n in enumerate([4, 1, 3, 4, 2, 4] * 4)])
        assert batch["request_counts"] == {"total": 24, "completed": 24, "failed": 0}
        engine.reply = text_reply("x")
        texts = ["a", "b", "c"]
        body = {"model": "default", "prompt": texts}
        lists = [{"custom_id": str(n), "method": "POST", "url": TEXT, "body": body} for n in range(6)]
        batch = await client.run(lists, TEXT)
        assert batch["request_counts"]["completed"] == 6


async def test_a_line_that_is_dropped_while_it_waits_takes_no_place():
    places = Places(Settings(engine=EngineSettings(max_num_seqs=4, max_queue=4)))
    assert places.total == 2

    async def hold(count, go):
        async with places.hold(count):
            await go.wait()

    go, never = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(hold(1, go))
    dropped = asyncio.create_task(hold(2, never))
    behind = asyncio.create_task(hold(1, go))
    await asyncio.sleep(0)
    dropped.cancel()
    go.set()
    await asyncio.gather(first, behind)
    assert dropped.cancelled() or dropped.cancelling()
    async with places.hold(2):
        pass


@pytest.mark.parametrize("busy", [Overloaded("Full."), RateLimited("Slow down.")])
async def test_a_busy_server_is_waited_for(client, engine, busy):
    asked = []

    def reply(request):
        asked.append(request)
        if len(asked) < 20:
            raise busy
        return text_reply("x")

    engine.reply = reply
    batch = await client.run([line("a")])
    assert batch["request_counts"] == {"total": 1, "completed": 1, "failed": 0}
    assert len(asked) == 20


async def test_an_engine_that_broke_down_is_waited_for_and_one_that_fails_is_not(client, engine):
    def reply(request):
        if len(engine.requests) == 3:
            engine.status = "ok"
        raise EngineFailed("It failed.")

    engine.status, engine.reply = "error", reply
    batch = await client.run([line("a")])
    (result,) = await client.results(batch, "error")
    assert (result["response"]["status_code"], len(engine.requests)) == (500, 3)


async def test_an_exception_tells_nothing_and_costs_one_line(client, engine):
    def reply(request):
        if said(request) == "bad":
            raise RuntimeError("/secret/path")
        return text_reply("x")

    engine.reply = reply
    batch = await client.run([line("a", "bad"), line("b")])
    assert batch["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
    (result,) = await client.results(batch, "error")
    assert result["response"]["status_code"] == 500
    assert "secret" not in json.dumps(result)


@pytest.mark.parametrize("error", [RequestCancelled("Cancelled."), RequestTimedOut("A plugin's limit.")])
async def test_a_line_that_somebody_ended_is_an_error_line(client, engine, error):
    engine.reply = [[Output(choice=0, events=[TextDelta("x")])], error]
    batch = await client.run([line("a")])
    (result,) = await client.results(batch, "error")
    assert result["response"]["status_code"] == error.status
    assert engine.streams[0].closed.is_set()


async def test_a_line_can_be_cancelled_by_its_request_id(client, engine):
    gate = asyncio.Event()
    engine.reply = lambda request: [gate, *text_reply("x")]
    batch = await client.begin([line("a")])
    while not engine.requests:
        await client.get("/batches")
    assert engine.cancel(engine.requests[0].trace_id)
    gate.set()
    batch = await client.end(batch)
    (result,) = await client.results(batch, "error")
    assert result["response"]["status_code"] == 499


async def test_cached_and_reasoning_tokens_are_counted(client, engine):
    usage = Usage(prompt_tokens=3, completion_tokens=5, cached_tokens=2, reasoning_tokens=4)
    engine.reply = [[Output(choice=0, events=[TextDelta("x")])], [Output(choice=0, finish="stop", usage=usage)]]
    batch = await client.run([line("a"), line("b")])
    assert batch["usage"]["input_tokens_details"] == {"cached_tokens": 4}
    assert batch["usage"]["output_tokens_details"] == {"reasoning_tokens": 8}


async def test_the_model_of_a_batch_is_the_one_that_all_lines_name(client):
    assert (await client.run([line("a", model="scripted/model"), line("b", model="default")]))["model"] is None
    assert (await client.run([line("a", model=None), line("b")]))["model"] is None
    assert (await client.run([line("a", model="x"), line("b", model="x")]))["model"] == "x"


async def test_nobody_has_too_many_batches_under_way(engine, clock, monkeypatch):
    monkeypatch.setattr("vllm_mlx_protocols.batches.ledger.MAX_UNFINISHED_BATCHES", 2)
    gate = asyncio.Event()
    engine.reply = lambda request: [gate, *text_reply("x")]
    async with serving(engine, clock=clock, api_keys=KEYS, key="key-of-me") as me:
        batches = [await me.begin([line("a")]) for _ in range(2)]
        order = {"input_file_id": batches[0]["input_file_id"], "endpoint": CHAT, "completion_window": "24h"}
        status, error = await me.error("POST", "/batches", json=order)
        assert (status, error["code"]) == (400, "too_many_batches")
        yours = Client(me.http, "key-of-you")
        batch = await yours.begin([line("a")])
        gate.set()
        await yours.end(batch)
        for each in batches:
            await me.end(each)
        await me.run([line("a")])


async def test_when_there_is_no_room_for_results_the_batch_fails_and_keeps_what_it_has(engine, clock):
    engine.reply = lambda request: text_reply("x" * 1000)
    async with serving(engine, clock=clock, plugin_options={"batches_max_mb": 0.01}) as client:
        batch = await client.run([line(str(number)) for number in range(20)])
        assert batch["status"] == "failed"
        assert [fault["code"] for fault in batch["errors"]["data"]] == ["storage_full"]
        results = await client.results(batch)
        assert 0 < len(results) == batch["request_counts"]["completed"] < 20
        total = sum(file["bytes"] for file in (await client.get("/files"))["data"])
        assert total <= 0.01 * 2**20
