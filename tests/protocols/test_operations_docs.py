"""The page names every route, field, metric and attribute, and invents none."""

from __future__ import annotations

import re

import msgspec
import pytest

from vllm_mlx_core.api import RequestSummary, Settings, Usage
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import ScriptedEngine
from vllm_mlx_protocols.operations import activity, cache, capabilities, catalog, status, tracing
from vllm_mlx_protocols.operations.frontend import OperationsFrontend


@pytest.fixture
def page(pytestconfig):
    return (pytestconfig.rootpath / "docs" / "protocols" / "operations.md").read_text(encoding="utf-8")


def section(page, title):
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def tables(text, head):
    """Return what stands in backticks in the first columns of the tables with this head, table by table."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        first, _, *rows = table.splitlines()
        if first.startswith(f"| {head} |"):
            found.append({name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])})
    return found


def fields(*structs):
    return {field.name for struct in structs for field in msgspec.structs.fields(struct)}


def test_every_route_is_listed(page):
    settings = Settings(plugin_options={"enable_metrics": True})
    engine = ScriptedEngine()
    paths = assemble(engine, [OperationsFrontend(engine, settings)], settings).openapi()["paths"]
    served = {f"{method.upper()} {path}" for path, operations in paths.items() for method in operations}
    (listed,) = tables(page.partition("\n## ")[0], "route")
    assert listed == served - {"GET /health"}


def test_every_field_of_the_status_is_listed(page):
    both, one = tables(section(page, "Status"), "field")
    assert both == fields(status.Figures)
    assert one == fields(status.Status, status.ModelStatus) - both
    (request,) = tables(section(page, "Status"), "field of a request")
    assert request == fields(activity.RequestStatus)
    text = section(page, "Status")
    assert all(f"`{name}`" in text for name in fields(status.Memory, status.WarmPrompts))


def test_every_field_of_the_cache_is_listed(page):
    (listed,) = tables(section(page, "Cache"), "field of a cache")
    assert listed == fields(cache.ModelCache)
    text = section(page, "Cache")
    assert all(name in text for name in fields(cache.CacheReport, cache.Cleared))


def test_every_field_of_the_capabilities_is_listed(page):
    text = section(page, "Capabilities")
    for head, struct in (
        ("field", capabilities.Capabilities),
        ("field of a model", capabilities.ModelCapabilities),
        ("field of the limits", capabilities.Limits),
    ):
        assert tables(text, head) == [fields(struct)]
    assert all(f"`{name}`" in text for name in capabilities.ASKED_FOR)


def test_every_metric_is_listed_with_its_type(page):
    (listed,) = tables(section(page, "Metrics"), "metric")
    assert listed == {catalog.exposed_name(each) for each in catalog.METRICS}
    kinds = {
        name: row.split("|")[2].strip()
        for row in section(page, "Metrics").splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    }
    assert kinds == {catalog.exposed_name(each): catalog.kind_of(each) for each in catalog.METRICS}


def test_every_attribute_of_a_trace_is_listed(page):
    (listed,) = tables(section(page, "Traces"), "attribute of `request`")
    whole = RequestSummary(
        request_id="r",
        trace_id="t",
        model="m",
        user="u",
        usage=Usage(),
        finish_reasons=(),
        first_token_s=None,
        total_s=1.0,
        error="EngineFailed",
    )
    assert listed == set(tracing._attributes(whole))
