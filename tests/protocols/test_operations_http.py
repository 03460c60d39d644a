from __future__ import annotations

import asyncio

import msgspec
import pytest

from vllm_mlx_core import __version__
from vllm_mlx_core.api import ActiveRequest, CacheMiss, CacheStats, EngineFailed, GenerateRequest, ModelInfo, Settings
from vllm_mlx_core.api.settings import ApiKey
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import ScriptedEngine, connect, text_reply
from vllm_mlx_protocols.operations import asking
from vllm_mlx_protocols.operations.frontend import OperationsFrontend

pytestmark = pytest.mark.anyio
ALICE, BOB = ({"authorization": f"Bearer {key}"} for key in ("a-key", "b-key"))
KEYS = (ApiKey("a-key", "alice"), ApiKey("b-key", "bob"))


class BusyEngine(ScriptedEngine):
    """Says of itself what the test tells it to."""

    def __init__(self, **options):
        super().__init__(**options)
        self.figures = {}
        self.active = None
        self.trouble = None
        self.freed = {info.id: 0 for info in self.models()}

    async def stats(self):
        if isinstance(self.trouble, asyncio.Event):
            await self.trouble.wait()
        elif self.trouble is not None:
            raise self.trouble
        plain = await super().stats()
        return [msgspec.structs.replace(each, **self.figures.get(each.model, {})) for each in plain]

    def active_requests(self):
        return super().active_requests() if self.active is None else self.active

    async def clear_cache(self):
        return self.freed


@pytest.fixture
def engine():
    return BusyEngine(models=("big", "small"))


def serve(engine, **settings):
    chosen = Settings(**settings)
    return connect(assemble(engine, [OperationsFrontend(engine, chosen)], chosen))


@pytest.fixture
async def client(engine):
    async with serve(engine) as client:
        yield client


async def get(client, path, status=200, **options):
    response = await client.get(path, **options)
    assert response.status_code == status, response.text
    return response.json()


def request(request_id="r1", **fields):
    known = {
        "request_id": request_id,
        "trace_id": f"trace-{request_id}",
        "model": "big",
        "user": None,
        "phase": "generation",
        "n": 1,
        "prompt_tokens": 100,
        "cached_tokens": 0,
        "generated_tokens": 11,
        "max_tokens": 40,
        "age_s": 7.0,
        "first_token_s": 2.0,
    }
    return ActiveRequest(**{**known, **fields})


async def test_readiness_is_that_of_the_engines(client, engine):
    assert (await get(client, "/ready"))["status"] == "ok"
    assert (await client.head("/ready")).status_code == 200
    engine.status = "error"
    assert (await get(client, "/ready", 503))["status"] == "error"
    assert (await client.head("/ready")).status_code == 503


async def test_the_version_is_the_packages(client):
    assert await get(client, "/version") == {"version": __version__}


async def test_the_status_adds_the_models_up(client, engine):
    engine.figures = {
        "big": {
            "steps": 7,
            "requests": 2,
            "prompt_tokens": 30,
            "completion_tokens": 4,
            "weights_bytes": 2**30,
            "active_memory_bytes": 3 * 2**30,
            "peak_memory_bytes": 4 * 2**30,
            "buffer_memory_bytes": 2**29,
            "cache": CacheStats(entries=2, nbytes=2**20, hits=3, misses=0, saved_tokens=50),
            "cache_max_bytes": 2**21,
        },
        "small": {
            "steps": 1,
            "requests": 1,
            "prompt_tokens": 5,
            "completion_tokens": 1,
            "uptime_s": 9.5,
            "active_memory_bytes": 3 * 2**30,
            "peak_memory_bytes": 4 * 2**30,
            "buffer_memory_bytes": 2**29,
            "cache": None,
            "cache_policy": "off",
            "cache_max_bytes": 2**20,
        },
    }
    engine.active = [request("r1"), request("r2", phase="prefill"), request("r3", model="small", phase="queued")]
    status = await get(client, "/v1/status")
    big, small = status["models"]
    names = ("num_running", "num_waiting", "steps_executed", "total_requests_processed", "total_prompt_tokens")
    assert [status[name] for name in names] == [2, 1, 8, 3, 35]
    assert [big[name] for name in names] == [2, 0, 7, 2, 30]
    assert [small[name] for name in names] == [0, 1, 1, 1, 5]
    assert (status["model"], big["model"], small["model"]) == ("big", "big", "small")
    assert (status["status"], big["status"]) == ("running", "running")
    assert (big["weights_gb"], small["uptime_s"]) == (1.0, 9.5)
    assert status["metal"] == {"active_memory_gb": 3.0, "peak_memory_gb": 4.0, "cache_memory_gb": 0.5}
    cache = status["cache"]
    assert (cache["type"], cache["entries"], cache["hit_rate"], cache["memory_mb"]) == ("radix, off", 2, 1.0, 1.0)
    assert cache["max_memory_mb"] == 3.0
    assert (small["cache"]["type"], small["cache"]["entries"], small["cache"]["hit_rate"]) == ("off", 0, None)
    assert [each["request_id"] for each in status["requests"]] == ["r1", "r2", "r3"]


async def test_a_request_is_described(client, engine):
    engine.active = [
        request("r1", cached_tokens=60),
        request("r2", n=2, generated_tokens=80, cached_tokens=99),
        request("r3", phase="queued", generated_tokens=0, first_token_s=None),
        request("r4", generated_tokens=1, age_s=2.0),
    ]
    first, second, third, fourth = (await get(client, "/v1/status"))["requests"]
    assert first == {
        "request_id": "r1",
        "trace_id": "trace-r1",
        "model": "big",
        "phase": "generation",
        "age_s": 7.0,
        "tokens_per_second": 2.0,  # ten tokens after the first, in five seconds
        "ttft_s": 2.0,
        "progress": 0.275,
        "cache_hit_type": "prefix",
        "cached_tokens": 60,
        "prompt_tokens": 100,
        "generated_tokens": 11,
        "max_tokens": 40,
        "n": 1,
    }
    assert (second["progress"], second["cache_hit_type"]) == (1.0, "exact")
    assert (third["ttft_s"], third["tokens_per_second"], third["cache_hit_type"]) == (None, None, None)
    assert (fourth["tokens_per_second"], fourth["cache_hit_type"]) == (None, "miss")


async def test_the_status_tells_what_it_can_of_an_engine_that_has_ended(client, engine):
    engine.status, engine.trouble, engine.active = "error", EngineFailed("It ended."), [request()]
    status = await get(client, "/v1/status")
    assert (status["status"], status["num_running"], len(status["requests"])) == ("stopped", 1, 1)
    assert [each["status"] for each in status["models"]] == ["stopped", "stopped"]
    for name in ("steps_executed", "total_requests_processed", "metal", "cache"):
        assert (status[name], status["models"][0][name]) == (None, None)


async def test_an_engine_that_does_not_answer_holds_up_nobody_for_long(client, engine, monkeypatch):
    monkeypatch.setattr(asking, "ANSWER_S", 0.01)
    engine.trouble = asyncio.Event()
    status = await get(client, "/v1/status")
    assert (status["status"], status["cache"]) == ("running", None)
    assert (await get(client, "/v1/cache/stats", 504))["error"]["type"] == "timeout_error"


async def test_without_models_nothing_is_loaded():
    async with serve(BusyEngine(models=())) as client:
        status = await get(client, "/v1/status")
        assert (status["status"], status["model"], status["models"]) == ("not_loaded", None, [])
        capabilities = await get(client, "/v1/capabilities")
        assert (capabilities["default_model"], capabilities["models"]) == (None, [])


async def test_one_model_may_be_down(client, engine, monkeypatch):
    report = {"status": "error", "models": {"big": {"status": "ok"}, "small": {"status": "error"}}}
    monkeypatch.setattr(engine, "health", lambda: report)
    status = await get(client, "/v1/status")
    assert status["status"] == "stopped"
    assert [each["status"] for each in status["models"]] == ["running", "stopped"]


async def test_callers_see_their_own_requests_and_the_counts_of_all(engine):
    engine.active = [request("r1", user="alice"), request("r2", user="bob"), request("r3", user=None)]
    async with serve(engine, api_keys=KEYS) as client:
        for headers, own in ((ALICE, "r1"), (BOB, "r2")):
            status = await get(client, "/v1/status", headers=headers)
            assert [each["request_id"] for each in status["requests"]] == [own]
            assert status["num_running"] == 3


async def test_capabilities_are_those_of_the_models_and_the_settings(engine):
    info = ModelInfo(
        id="big",
        created=1,
        context_length=4096,
        family="text",
        aliases=("default", "/models/big"),
        tool_parser="hermes",
        capabilities={"chat": True, "tools": True, "structured_output": True, "serving_mode": "batched"},
    )
    engine._models = [info, msgspec.structs.replace(info, id="small", context_length=512, capabilities={})]
    async with serve(engine, max_request_tokens=1000, max_completions=3, rate_limit=60, timeout_s=9.0) as client:
        found = await get(client, "/v1/capabilities")
    big, small = found["models"]
    assert big["capabilities"] == {
        "chat": True,
        "completion": False,
        "tools": True,
        "reasoning": False,
        "infill": False,
        "vision": False,
        "structured_output": True,
        "serving_mode": "batched",
    }
    assert set(small["capabilities"].values()) == {False}
    assert (big["max_tokens"], small["max_tokens"]) == (1000, 512)
    assert (big["tool_parser"], big["reasoning_parser"], big["aliases"]) == ("hermes", None, list(info.aliases))
    limits = found["limits"]
    assert (limits["max_completions"], limits["max_request_tokens"]) == (3, 1000)
    assert (limits["requests_per_minute"], limits["timeout_s"]) == (60, 9.0)
    assert (found["default_model"], found["version"], found["authentication"]) == ("big", __version__, False)
    assert "/v1/status" in found["routes"]
    assert "/metrics" not in found["routes"]


async def test_the_cache_is_reported_by_model(client, engine):
    engine.figures = {
        "big": {
            "cache": CacheStats(hits=1, misses=3, last_miss=CacheMiss("It was edited.", 9, position=4, prompt_token=7))
        }
    }
    report = await get(client, "/v1/cache/stats")
    assert report["cache"]["hit_rate"] == 0.25
    assert "last_miss" not in report["cache"]
    assert report["models"]["big"]["misses"] == 3
    assert report["models"]["big"]["last_miss"] == {
        "reason": "It was edited.",
        "prompt_tokens": 9,
        "position": 4,
        "prompt_token": {"id": 7, "text": "\x07"},
        "cached_token": None,
        "nearest_tokens": None,
    }
    assert (report["models"]["small"]["hit_rate"], report["models"]["small"]["last_miss"]) == (None, None)
    engine.trouble = EngineFailed("It ended.")
    assert (await get(client, "/v1/cache/stats", 500))["error"]["message"] == "It ended."


@pytest.mark.parametrize("path", ["/v1/cache", "/v1/cache/prefix"])
async def test_clearing_tells_what_was_freed(client, engine, path):
    engine.freed = {"big": 2**21, "small": 2**19}
    response = await client.delete(path)
    assert response.status_code == 200
    assert response.json() == {
        "status": "cleared",
        "freed_mb": 2.5,
        "models": {"big": 2.0, "small": 0.5},
        "rewarm_scheduled": False,
    }


async def start(engine, request_id, user=None):
    """Start a request, and return the stream of its outputs."""
    engine.reply = text_reply("wombat")
    return await engine.generate(
        GenerateRequest(request_id=request_id, model="big", prompt="x", user=user, trace_id=f"trace-{request_id}")
    )


@pytest.mark.parametrize("name", ["r1", "trace-r1"])
@pytest.mark.parametrize(("method", "suffix"), [("POST", "/cancel"), ("DELETE", "")])
async def test_a_request_is_cancelled_under_either_id(client, engine, name, method, suffix):
    one, other = await start(engine, "r1"), await start(engine, "r2")
    response = await client.request(method, f"/v1/requests/{name}{suffix}")
    assert response.status_code == 200
    assert response.json() == {"object": "request.cancel", "id": name, "cancelled": True}
    assert (one.cancelled, other.cancelled) == (True, False)


async def test_a_request_that_is_not_there_is_not_found(client, engine):
    await (await start(engine, "r1")).aclose()
    for name in ("r1", "nobody"):
        response = await client.delete(f"/v1/requests/{name}")
        assert response.status_code == 404
        error = response.json()["error"]
        assert (error["code"], error["param"]) == ("request_not_found", "request_id")


async def test_nobody_cancels_the_requests_of_others(engine):
    async with serve(engine, api_keys=KEYS) as client:
        stream = await start(engine, "r1", "alice")
        theirs = await client.post("/v1/requests/r1/cancel", headers=BOB)
        missing = await client.post("/v1/requests/r9/cancel", headers=BOB)
        assert (theirs.status_code, theirs.content) == (404, missing.content)
        assert not stream.cancelled
        assert (await client.post("/v1/requests/trace-r1/cancel", headers=ALICE)).status_code == 200
        assert stream.cancelled


async def test_every_route_needs_a_key(engine):
    settings = Settings(api_keys=KEYS, plugin_options={"enable_metrics": True})
    app = assemble(engine, [OperationsFrontend(engine, settings)], settings)
    paths = app.openapi()["paths"]
    assert {"/ready", "/metrics", "/v1/requests/{request_id}"} <= set(paths)
    async with connect(app) as client:
        for path, operations in paths.items():
            for method in operations:
                if path != "/health":
                    response = await client.request(method.upper(), path)
                    assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_errors_are_in_openais_envelope_on_every_path(client):
    for path in OperationsFrontend.paths:
        response = await client.put(f"{path}/no/such")
        assert response.status_code == 404
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert (await client.put("/v1/status")).status_code == 405


async def test_operations_are_named_in_the_openapi_document(engine):
    frontend = OperationsFrontend(engine, Settings(plugin_options={"enable_metrics": True}))
    paths = assemble(engine, [frontend], Settings()).openapi()["paths"]
    names = [each["operationId"] for path in paths.values() for each in path.values()]
    assert len(set(names)) == len(names)
    assert {"cancelRequest", "deleteRequest", "clearCache", "clearPrefixCache", "metrics", "status"} <= set(names)
