"""The listing of everything that is offered."""

from __future__ import annotations

import json
import sys

import pytest

from vllm_mlx_core.host import report

MODULE = """
from vllm_mlx_core.api import MissingExtra, ToolParser

class Parser(ToolParser):
    def feed(self, chunk):
        return ()

    def finish(self):
        return ()

def __getattr__(name):
    if name == "Vision":
        raise MissingExtra("pip install acme[vision]")
    raise AttributeError(name)
"""


@pytest.fixture(autouse=True)
def offers(site, hooks):
    site.module("acme_tools", MODULE)
    site.distribution("acme", {"tool_parsers": {"good": "acme_tools:Parser"}}, version="2.0")
    hooks("watcher", "@hookimpl\ndef vllm_mlx_shutdown():\n    pass")


def states(listing: list[report.Row]) -> dict[tuple[str, str, str], str]:
    return {(row.kind, row.name, row.distribution): row.state for row in listing}


def test_a_listing_shows_what_there_is_without_importing_it(site):
    listing = report.rows(site.host())
    assert states(listing) == {
        ("hooks", "watcher", "watcher-dist"): "active",
        ("tool_parsers", "good", "acme"): "available",
    }
    assert "acme_tools" not in sys.modules
    assert not report.is_broken(listing)


def test_a_check_imports_and_verifies_every_target(site):
    site.distribution("faulty", {"tool_parsers": {"bad": "acme_tools:Gone"}, "protocols": {"bad": "acme_tools:Parser"}})
    listing = report.rows(site.host(), check=True)
    assert states(listing) == {
        ("hooks", "watcher", "watcher-dist"): "active",
        ("tool_parsers", "bad", "faulty"): "broken",
        ("tool_parsers", "good", "acme"): "ok",
        ("protocols", "bad", "faulty"): "broken",
    }
    assert report.is_broken(listing)


def test_a_missing_extra_is_not_a_fault(site):
    site.distribution("extra", {"tool_parsers": {"vision": "acme_tools:Vision"}})
    listing = report.rows(site.host(), check=True)
    (vision,) = [row for row in listing if row.name == "vision"]
    assert (vision.state, vision.detail) == ("missing extra", "pip install acme[vision]")
    assert not report.is_broken(listing)


def test_names_of_two_distributions_are_ambiguous_and_say_how_to_choose(site):
    site.distribution("rival", {"tool_parsers": {"good": "acme_tools:Parser"}})
    for check in (False, True):
        listing = [row for row in report.rows(site.host(), check=check) if row.kind == "tool_parsers"]
        assert [(row.state, row.detail) for row in listing] == [
            ("ambiguous", "choose it as good@acme"),
            ("ambiguous", "choose it as good@rival"),
        ]


def test_what_is_switched_off_is_listed_as_blocked_and_not_checked(site):
    site.distribution("faulty", {"tool_parsers": {"bad": "acme_tools:Gone"}})
    listing = report.rows(site.host("no:bad", "no:watcher"), check=True)
    assert states(listing)[("tool_parsers", "bad", "faulty")] == "blocked"
    assert states(listing)[("hooks", "watcher", "watcher-dist")] == "blocked"


def test_a_broken_hook_plugin_is_broken_without_a_check(site, hooks):
    hooks("typo", "@hookimpl\ndef vllm_mlx_mont():\n    pass")
    listing = report.rows(site.host())
    assert states(listing)[("hooks", "typo", "typo-dist")] == "broken"
    assert report.is_broken(listing)


def test_the_json_has_one_object_for_each_row(site):
    found = json.loads(report.as_json(report.rows(site.host())))
    assert found[1] == {
        "kind": "tool_parsers",
        "name": "good",
        "distribution": "acme",
        "version": "2.0",
        "state": "available",
        "target": "acme_tools:Parser",
        "detail": "",
    }


def test_the_table_has_aligned_columns_and_explains_below(site):
    site.distribution("faulty", {"tool_parsers": {"bad": "acme_tools:Gone"}})
    table = report.as_table(report.rows(site.host(), check=True)).splitlines()
    header, *lines = table[:4]
    column = header.index("STATE")
    assert [line[column:].split()[0] for line in lines] == ["active", "broken", "ok"]
    assert table[4] == ""
    assert table[5].startswith("tool_parsers bad: tool parser 'bad' of faulty 1.0 (acme_tools:Gone) cannot be imported")


def test_a_table_without_anything_to_explain_ends_with_its_last_row(site):
    assert len(report.as_table(report.rows(site.host())).splitlines()) == 3
