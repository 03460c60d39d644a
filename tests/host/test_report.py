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
        "aliases": [],
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


def names(listing: list[report.Row]) -> list[tuple[str, list[str]]]:
    return [(row.name, list(row.aliases)) for row in listing if row.kind == "tool_parsers"]


@pytest.mark.parametrize(
    ("declared", "target", "listed"),
    [
        ("zed acme_tools a", "Parser", ("acme_tools", ["a", "zed"])),
        ("acme-tools a", "Parser", ("acme-tools", ["a"])),
        ("zed a", "ZedToolParser", ("zed", ["a"])),
        ("b a", "Parser", ("a", ["b"])),
    ],
)
def test_names_of_one_target_are_aliases_of_the_one_called_like_its_module_or_class(site, declared, target, listed):
    site.distribution("many", {"tool_parsers": dict.fromkeys(declared.split(), f"acme_tools:{target}")})
    assert listed in names(report.rows(site.host()))


def test_a_table_shows_aliases_behind_the_name_and_the_json_in_a_list(site):
    site.distribution("many", {"tool_parsers": {"acme_tools": "acme_tools:Parser", "zed": "acme_tools:Parser"}})
    listing = report.rows(site.host(), check=True)
    assert "  acme_tools (zed)  many  " in report.as_table(listing)
    assert [row["aliases"] for row in json.loads(report.as_json(listing)) if row["name"] == "acme_tools"] == [["zed"]]


def test_an_alias_that_is_switched_off_or_ambiguous_has_a_row_of_its_own(site):
    offers = dict.fromkeys(("acme_tools", "off", "good", "zed"), "acme_tools:Parser")
    site.distribution("many", {"tool_parsers": offers})
    listing = report.rows(site.host("no:off"))
    assert names(listing) == [("acme_tools", ["zed"]), ("good", []), ("good", []), ("off", [])]
    assert states(listing)[("tool_parsers", "off", "many")] == "blocked"
    assert states(listing)[("tool_parsers", "good", "many")] == "ambiguous"


def test_the_same_class_of_two_distributions_is_listed_for_each(site):
    site.distribution("rival", {"tool_parsers": {"other": "acme_tools:Parser"}})
    assert names(report.rows(site.host())) == [("good", []), ("other", [])]
