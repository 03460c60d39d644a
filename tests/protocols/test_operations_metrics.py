from __future__ import annotations

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from vllm_mlx_core.api import CacheStats, EngineFailed, RequestSummary, Settings, StepStats, Usage
from vllm_mlx_core.host import Host
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import ScriptedEngine, connect
from vllm_mlx_protocols.operations import catalog
from vllm_mlx_protocols.operations.frontend import OperationsFrontend

pytestmark = pytest.mark.anyio
MODEL = "scripted/model"
ON = Settings(plugin_options={"enable_metrics": True})
STEP = StepStats(model=MODEL, running=2, waiting=1, prefilled_tokens=30, generated_tokens=2, step_s=0.03)
DONE = RequestSummary(
    request_id="r1",
    model=MODEL,
    user="alice",
    usage=Usage(prompt_tokens=10, completion_tokens=9, cached_tokens=4, reasoning_tokens=3),
    finish_reasons=("stop",),
    queued_s=0.5,
    first_token_s=2.0,
    total_s=10.0,
)


class BusyEngine(ScriptedEngine):
    """Says of itself what the test tells it to."""

    def __init__(self):
        super().__init__()
        self.figures = {}
        self.trouble = None

    async def stats(self):
        if self.trouble is not None:
            raise self.trouble
        return [msgspec.structs.replace(each, **self.figures) for each in await super().stats()]


@pytest.fixture
def engine():
    return BusyEngine()


@pytest.fixture
def frontend(engine):
    return OperationsFrontend(engine, ON)


def changed(**fields):
    return msgspec.structs.replace(DONE, **fields)


async def text(frontend):
    async with connect(assemble(frontend.engine, [frontend], frontend.settings)) as client:
        response = await client.get("/metrics", headers={"accept": "application/openmetrics-text;version=x"})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return response.text


async def scrape(frontend):
    """Return the value of every series by its name and the values of its labels but the model's."""
    found = {}
    for family in text_string_to_metric_families(await text(frontend)):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("model_name") == MODEL
            found[(sample.name, *labels.values())] = sample.value
    return found


async def test_without_the_option_there_are_no_metrics(engine):
    frontend = OperationsFrontend(engine, Settings())
    frontend.vllm_mlx_request_finished(DONE)
    frontend.vllm_mlx_step_finished(STEP)
    async with connect(assemble(engine, [frontend], Settings())) as client:
        response = await client.get("/metrics")
    assert response.status_code == 404
    assert response.json()["error"]["type"] == "not_found_error"


async def test_a_request_is_counted_and_its_phases_are_measured(frontend):
    frontend.vllm_mlx_request_finished(changed(invalid_tool_calls=2))
    found = await scrape(frontend)
    counters = {
        "vllm:prompt_tokens_total": 10,
        "vllm:prefix_cache_queries_total": 10,
        "vllm:prefix_cache_hits_total": 4,
        "vllm_mlx:reasoning_tokens_total": 3,
        "vllm_mlx:invalid_tool_calls_total": 2,
    }
    assert {name: found[(name,)] for name in counters} == counters
    sums = {
        "vllm:request_queue_time_seconds": 0.5,
        "vllm:request_prefill_time_seconds": 1.5,
        "vllm:time_to_first_token_seconds": 2.0,
        "vllm:request_decode_time_seconds": 8.0,
        "vllm:e2e_request_latency_seconds": 10.0,
        "vllm:request_time_per_output_token_seconds": 1.0,
        "vllm:request_prompt_tokens": 10,
        "vllm:request_generation_tokens": 9,
    }
    assert {name: found[(f"{name}_sum",)] for name in sums} == sums
    assert {found[(f"{name}_count",)] for name in sums} == {1}
    assert found[("vllm:time_to_first_token_seconds_bucket", "1.0")] == 0
    assert found[("vllm:time_to_first_token_seconds_bucket", "2.5")] == 1


async def test_completions_are_counted_by_how_they_ended(frontend):
    frontend.vllm_mlx_request_finished(changed(finish_reasons=("stop", "tool_calls", "length")))
    for error in ("RequestCancelled", "RequestTimedOut", "EngineFailed"):
        frontend.vllm_mlx_request_finished(changed(finish_reasons=(), error=error))
    found = await scrape(frontend)
    assert {key[1]: value for key, value in found.items() if key[0] == "vllm:request_success_total"} == {
        "stop": 2,
        "length": 1,
        "abort": 2,
        "error": 1,
    }
    assert {key[1]: value for key, value in found.items() if key[0] == "vllm_mlx:failed_requests_total"} == {
        "RequestCancelled": 1,
        "RequestTimedOut": 1,
        "EngineFailed": 1,
    }


async def test_completions_side_by_side_do_not_make_tokens_look_fast(frontend):
    frontend.vllm_mlx_request_finished(
        changed(finish_reasons=("stop",) * 4, usage=Usage(prompt_tokens=1, completion_tokens=4 * 9))
    )
    found = await scrape(frontend)
    assert found[("vllm:request_time_per_output_token_seconds_sum",)] == 1.0


@pytest.mark.parametrize(
    ("queued_s", "first_token_s", "measured"),
    [(None, None, set()), (0.5, None, {"queue"}), (0.5, 2.0, {"queue", "prefill", "first"})],
)
async def test_of_a_request_that_failed_the_phases_it_got_through_are_measured(
    frontend, queued_s, first_token_s, measured
):
    frontend.vllm_mlx_request_finished(
        changed(queued_s=queued_s, first_token_s=first_token_s, error="EngineFailed", finish_reasons=())
    )
    found = await scrape(frontend)
    names = {
        "queue": "vllm:request_queue_time_seconds",
        "prefill": "vllm:request_prefill_time_seconds",
        "first": "vllm:time_to_first_token_seconds",
        "decode": "vllm:request_decode_time_seconds",
        "all": "vllm:e2e_request_latency_seconds",
    }
    assert {phase for phase, name in names.items() if found[(f"{name}_count",)]} == measured
    assert found[("vllm:prompt_tokens_total",)] == (10 if "first" in measured else 0)
    assert found[("vllm:prefix_cache_queries_total",)] == 0


async def test_an_answer_of_one_token_has_no_time_between_tokens(frontend):
    frontend.vllm_mlx_request_finished(changed(usage=Usage(prompt_tokens=3, completion_tokens=1)))
    found = await scrape(frontend)
    assert found[("vllm:request_time_per_output_token_seconds_count",)] == 0
    assert found[("vllm:request_decode_time_seconds_count",)] == 1


async def test_steps_are_counted_and_those_that_did_nothing_are_not(frontend):
    frontend.vllm_mlx_step_finished(STEP)
    frontend.vllm_mlx_step_finished(STEP)
    frontend.vllm_mlx_step_finished(msgspec.structs.replace(STEP, prefilled_tokens=0, generated_tokens=0))
    found = await scrape(frontend)
    assert found[("vllm:generation_tokens_total",)] == 4
    assert found[("vllm_mlx:prefilled_tokens_total",)] == 60
    assert (found[("vllm:iteration_tokens_total_count",)], found[("vllm:iteration_tokens_total_sum",)]) == (2, 64)
    assert found[("vllm_mlx:step_time_seconds_sum",)] == pytest.approx(0.06)


async def test_the_engines_are_asked_at_every_scrape(frontend, engine):
    for running in (1, 5):
        engine.figures = {"running": running, "waiting": 2, "cache": CacheStats(hits=running, nbytes=7)}
        found = await scrape(frontend)
        assert (found[("vllm:num_requests_running",)], found[("vllm:num_requests_waiting",)]) == (running, 2)
        assert found[("vllm_mlx:prefix_cache_lookup_hits_total",)] == running
        assert found[("vllm_mlx:prefix_cache_bytes",)] == 7
        assert ("vllm_mlx:prefix_cache_max_bytes",) not in found  # there is no limit
    engine.figures = {"cache": None}
    assert ("vllm_mlx:prefix_cache_bytes",) not in await scrape(frontend)


async def test_what_was_counted_is_told_even_if_the_engine_is_gone(frontend, engine):
    assert (await scrape(frontend))[("vllm_mlx:engine_healthy",)] == 1
    frontend.vllm_mlx_request_finished(DONE)
    engine.trouble, engine.status = EngineFailed("It ended."), "error"
    found = await scrape(frontend)
    assert (found[("vllm:prompt_tokens_total",)], found[("vllm_mlx:engine_healthy",)]) == (10, 0)
    assert ("vllm:num_requests_running",) not in found


async def test_clients_cannot_make_new_series(frontend):
    frontend.vllm_mlx_request_finished(DONE)
    before = set(await scrape(frontend))
    for number in range(50):
        frontend.vllm_mlx_request_finished(changed(request_id=f"r{number}", trace_id=f"t{number}", user=f"u{number}"))
    assert set(await scrape(frontend)) == before


async def test_two_servers_in_one_process_count_apart(engine):
    one, other = OperationsFrontend(engine, ON), OperationsFrontend(engine, ON)
    one.vllm_mlx_request_finished(DONE)
    assert (await scrape(one))[("vllm:prompt_tokens_total",)] == 10
    assert (await scrape(other))[("vllm:prompt_tokens_total",)] == 0


async def test_the_host_calls_the_hooks(frontend):
    host = Host()
    host.load()
    host.add_observer("operations", frontend)
    host.request_finished(DONE)
    host.step_finished(STEP)
    found = await scrape(frontend)
    assert (found[("vllm:prompt_tokens_total",)], found[("vllm:generation_tokens_total",)]) == (10, 2)


async def test_what_is_exposed_is_what_the_catalog_lists(frontend, engine):
    engine.figures = {"cache_max_bytes": 1}
    frontend.vllm_mlx_request_finished(changed(error="EngineFailed"))
    exposed = {line.split()[2] for line in (await text(frontend)).splitlines() if line.startswith("# TYPE ")}
    assert exposed == {catalog.exposed_name(each) for each in catalog.METRICS}
    assert all(each.help.endswith(".") for each in catalog.METRICS)
