"""How batches end early, and how they go on."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from vllm_mlx_core.api import RequestTimedOut
from vllm_mlx_core.testing.protocols import ScriptedEngine, text_reply
from vllm_mlx_protocols.batches import runner
from vllm_mlx_protocols.batches.progress import Progress

from .batching import DAY_S, Clock, line, said, serving

pytestmark = pytest.mark.anyio
LINES = [line(f"r{number}", f"text {number}") for number in range(20)]


class GatedEngine(ScriptedEngine):
    """Answers the first lines that it is asked for, and holds all others until the gate is opened."""

    def __init__(self, answered):
        super().__init__(self._reply)
        self.answered = answered
        self.gate = asyncio.Event()

    def _reply(self, request):
        held = [] if len(self.requests) <= self.answered else [self.gate]
        return [*held, *text_reply(said(request))]


@pytest.fixture
def clock():
    return Clock()


async def half_done(client, engine, lines=LINES):
    """Begin a batch, and wait until the engine has answered what it will and holds the rest."""
    batch = await client.begin(lines)
    return await client.until(
        batch,
        lambda batch: (
            batch["request_counts"]["completed"] == engine.answered
            and len([stream for stream in engine.streams if not stream.closed.is_set()]) == 8
        ),
    )


async def test_a_cancelled_batch_keeps_what_is_finished(clock):
    engine = GatedEngine(5)
    async with serving(engine, clock=clock) as client:
        batch = await half_done(client, engine)
        clock.now += 10
        answer = await client.cancel(batch)
        assert (answer["status"], answer["cancelling_at"]) == ("cancelling", int(clock.now))
        batch = await client.end(batch)
        assert (batch["status"], batch["cancelled_at"], batch["errors"]) == ("cancelled", int(clock.now), None)
        assert batch["request_counts"] == {"total": 20, "completed": 5, "failed": 0}
        assert await client.texts(batch) == {f"r{number}": f"text {number}" for number in range(5)}
        assert all(stream.closed.is_set() for stream in engine.streams)
        assert len(engine.requests) == 13
        assert (await client.cancel(batch))["status"] == "cancelled"


async def test_a_batch_can_be_cancelled_before_it_has_begun_and_not_after_its_end(clock):
    engine = ScriptedEngine(lambda request: text_reply("x"))
    async with serving(engine, clock=clock) as client:
        batch = await client.begin(LINES)
        await client.cancel(batch)
        assert (await client.end(batch))["status"] == "cancelled"
        batch = await client.run(LINES)
        status, error = await client.error("POST", f"/batches/{batch['id']}/cancel")
        assert status == 400
        assert "completed" in error["message"]


async def test_a_file_that_is_being_read_is_kept(clock):
    engine = GatedEngine(0)
    async with serving(engine, clock=clock) as client:
        batch = await half_done(client, engine)
        path = f"/files/{batch['input_file_id']}"
        status, error = await client.error("DELETE", path)
        assert (status, error["code"]) == (400, "file_in_use")
        assert batch["id"] in error["message"]
        clock.now += 31 * DAY_S  # it has expired
        assert (await client.get(path))["id"] == batch["input_file_id"]
        await client.upload(b"x")
        await client.cancel(batch)
        await client.end(batch)
        assert (await client.error("GET", path))[0] == 404


async def test_a_batch_whose_time_is_over_says_so_of_the_lines_that_it_did_not_come_to(clock):
    engine = GatedEngine(5)
    lines = [line(f"r{number}") for number in range(500)]
    async with serving(engine, clock=clock) as client:
        batch = await half_done(client, engine, lines)
        clock.now += DAY_S
        engine.gate.set()
        batch = await client.end(batch)
        assert (batch["status"], batch["expired_at"]) == ("expired", int(clock.now))
        done = await client.results(batch)
        assert len(done) == 13  # what was in flight came to its end
        assert batch["request_counts"] == {"total": 500, "completed": 13, "failed": 487}
        expired = await client.results(batch, "error")
        assert [each["custom_id"] for each in expired] == [f"r{number}" for number in range(13, 500)]
        assert all(each["response"] is None and each["error"]["code"] == "batch_expired" for each in expired)


async def test_a_line_that_ran_out_of_the_batchs_time_has_expired(clock):
    def reply(request):
        clock.now += request.timeout_s
        raise RequestTimedOut("It took too long.")

    engine = ScriptedEngine(reply)
    async with serving(engine, clock=clock) as client:
        batch = await client.run([line("a")])
        assert batch["status"] == "expired"
        (result,) = await client.results(batch, "error")
        assert result["error"]["code"] == "batch_expired"


async def test_a_batch_goes_on_after_a_restart(clock, tmp_path):
    engine = GatedEngine(5)
    async with serving(engine, clock=clock, state_dir=tmp_path) as client:
        batch = await half_done(client, engine)
    assert all(stream.closed.is_set() for stream in engine.streams)
    again = ScriptedEngine(lambda request: text_reply(said(request)))
    async with serving(again, clock=clock, state_dir=tmp_path) as client:
        batch = await client.end(batch)
        assert (batch["status"], batch["request_counts"]["completed"]) == ("completed", 20)
        assert list((await client.texts(batch)).items()) == [(f"r{number}", f"text {number}") for number in range(20)]
    assert sorted(said(request) for request in again.requests) == sorted(f"text {number}" for number in range(5, 20))


async def test_a_batch_that_was_to_be_cancelled_is_after_a_restart(clock, tmp_path):
    async with serving(GatedEngine(0), clock=clock, state_dir=tmp_path) as client:
        batch = await client.begin(LINES)
        with sqlite3.connect(tmp_path / "batches.db") as db:
            db.execute("UPDATE batches SET status = 'cancelling', outcome = 'cancelled'")
        db.close()
    async with serving(ScriptedEngine(), clock=clock, state_dir=tmp_path) as client:
        assert (await client.end(batch))["status"] == "cancelled"


async def test_of_two_servers_one_works_on_a_batch_and_the_other_when_that_is_gone(clock, tmp_path):
    mine, yours = GatedEngine(5), ScriptedEngine(lambda request: text_reply(said(request)))
    async with serving(yours, clock=clock, state_dir=tmp_path) as other:
        async with serving(mine, clock=clock, state_dir=tmp_path) as client:
            batch = await half_done(client, mine)
            assert (await other.get(f"/batches/{batch['id']}"))["request_counts"]["completed"] == 5
            assert yours.requests == []
        batch = await other.end(batch)
        assert batch["request_counts"]["completed"] == 20
    assert len(yours.requests) == 15


async def test_a_server_takes_over_what_another_leaves_while_it_runs(clock, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "LOOK_AROUND_S", 0)
    mine, yours = GatedEngine(5), ScriptedEngine(lambda request: text_reply(said(request)))
    async with serving(yours, clock=clock, state_dir=tmp_path):
        async with serving(mine, clock=clock, state_dir=tmp_path) as client:
            await half_done(client, mine)
        async with asyncio.timeout(30):
            while len(yours.requests) < 15:  # nobody asks for the batch
                await asyncio.sleep(0)


async def test_a_server_of_other_models_leaves_a_batch_alone_until_it_needs_no_model(clock, tmp_path, caplog):
    engine, strange = GatedEngine(5), ScriptedEngine(models=["other/model"])
    async with serving(engine, clock=clock, state_dir=tmp_path) as client:
        first, second, third = [await half_done(client, engine), await client.begin(LINES), await client.begin(LINES)]
    async with serving(strange, clock=clock, state_dir=tmp_path) as other:
        for batch in (first, second, third):
            assert (await other.get(f"/batches/{batch['id']}"))["status"] in ("in_progress", "validating")
        while "waits for a server of scripted/model" not in caplog.text:
            await other.get(f"/batches/{first['id']}")
        for _ in range(5):
            await other.get(f"/batches/{first['id']}")
        assert caplog.text.count(f"{first['id']} waits for") == 1
        await other.cancel(second)
        assert (await other.end(second))["status"] == "cancelled"
    again = ScriptedEngine(lambda request: text_reply(said(request)))
    async with serving(again, clock=clock, state_dir=tmp_path) as client:
        batch = await client.end(first)
        assert batch["request_counts"] == {"total": 20, "completed": 20, "failed": 0}
    assert strange.requests == []


async def test_a_batch_of_other_models_expires_wherever_somebody_looks(clock, tmp_path):
    engine = GatedEngine(5)
    async with serving(engine, clock=clock, state_dir=tmp_path) as client:
        batch = await half_done(client, engine)
    clock.now += DAY_S + 1
    async with serving(ScriptedEngine(models=["other/model"]), clock=clock, state_dir=tmp_path) as other:
        batch = await other.end(batch)
        assert (batch["status"], batch["request_counts"]["completed"]) == ("expired", 5)


async def test_a_batch_is_cancelled_through_another_server(clock, tmp_path):
    engine = GatedEngine(5)
    async with (
        serving(engine, clock=clock, state_dir=tmp_path) as client,
        serving(ScriptedEngine(), clock=clock, state_dir=tmp_path) as other,
    ):
        batch = await half_done(client, engine)
        assert (await other.cancel(batch))["status"] == "cancelling"
        engine.gate.set()
        batch = await client.end(batch)
        assert batch["status"] == "cancelled"
        assert len(await client.results(batch)) == 13


async def test_a_database_that_fails_for_a_while_costs_no_line(clock, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(runner, "TRY_AGAIN_S", 0)
    engine = ScriptedEngine(lambda request: text_reply(said(request)))
    failures = iter([sqlite3.OperationalError("disk I/O error")] * 3)

    async with serving(engine, clock=clock, state_dir=tmp_path) as client:
        record = Progress._record

        def failing(self, *args):
            for failure in failures:
                raise failure
            record(self, *args)

        monkeypatch.setattr(Progress, "_record", failing)
        batch = await client.run(LINES)
        assert batch["request_counts"] == {"total": 20, "completed": 20, "failed": 0}
        assert len(await client.texts(batch)) == 20
    assert "is interrupted" in caplog.text
