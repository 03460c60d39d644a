"""Choosing extensions by name."""

from __future__ import annotations

import sys

import pytest

from vllm_mlx_core.api import PluginError, ToolParser

PARSER = """
from vllm_mlx_core.api import ToolParser

class Parser(ToolParser):
    def feed(self, chunk):
        return ()

    def finish(self):
        return ()

class Unfinished(ToolParser):
    def feed(self, chunk):
        return ()

not_a_class = 1
"""


@pytest.fixture(autouse=True)
def offers(site):
    site.module("good_parsers", PARSER)
    site.distribution("acme-parsers", {"tool_parsers": {"acme": "good_parsers:Parser"}}, version="1.2")


def test_names_are_known_without_importing_their_targets(site):
    host = site.host()
    assert host.tool_parsers.names() == ["acme"]
    assert "acme" in host.tool_parsers
    assert "good_parsers" not in sys.modules


def test_get_imports_the_chosen_class(site):
    parser = site.host().tool_parsers.get("acme")
    assert issubclass(parser, ToolParser)
    assert parser.__module__ == "good_parsers"


def test_iteration_gives_entries_sorted_by_name_with_their_origin(site):
    site.distribution("beta", {"tool_parsers": {"aaa": "good_parsers:Parser"}})
    entries = list(site.host().tool_parsers)
    assert [(e.name, e.distribution, e.version, e.target) for e in entries] == [
        ("aaa", "beta", "1.0", "good_parsers:Parser"),
        ("acme", "acme-parsers", "1.2", "good_parsers:Parser"),
    ]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("acmee", "There is no tool parser 'acmee'. Did you mean 'acme'? Known: acme."),
        ("zzz", "There is no tool parser 'zzz'. Known: acme."),
        ("acme@other", "There is no tool parser 'acme@other'. Did you mean 'acme'? Known: acme."),
    ],
)
def test_an_unknown_name_says_what_is_known(site, choice, message):
    with pytest.raises(PluginError) as caught:
        site.host().tool_parsers.get(choice)
    assert str(caught.value) == message


def test_a_name_in_an_empty_registry_says_that_nothing_is_installed(site):
    with pytest.raises(PluginError, match=r"^There is no model family 'x'\. None is installed\.$"):
        site.host().model_families.get("x")


def test_two_distributions_with_one_name_are_an_error_that_names_both(site):
    site.distribution("Rival.Parsers", {"tool_parsers": {"acme": "good_parsers:Parser"}})
    host = site.host()
    with pytest.raises(PluginError, match=r"'acme' is offered more than once; choose acme@\S+ or acme@\S+\.") as caught:
        host.tool_parsers.get("acme")
    assert "acme@acme-parsers" in str(caught.value)
    assert "acme@Rival.Parsers" in str(caught.value)


@pytest.mark.parametrize("spelling", ["Rival.Parsers", "rival-parsers", "rival_parsers"])
def test_a_distribution_chooses_among_equal_names_however_it_is_spelled(site, spelling):
    site.distribution("Rival.Parsers", {"tool_parsers": {"acme": "good_parsers:Parser"}})
    assert site.host().tool_parsers.find(f"acme@{spelling}").distribution == "Rival.Parsers"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_such_module:Parser", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("leaving_parsers:Parser", "cannot be imported: SystemExit: nothing to do here"),
        ("good_parsers:Missing", "cannot be imported: AttributeError: .*Missing"),
        ("good_parsers:not_a_class", "is not a subclass of ToolParser"),
        ("collections:OrderedDict", "is not a subclass of ToolParser"),
        ("good_parsers:Unfinished", "does not implement finish"),
    ],
)
def test_a_target_that_cannot_be_used_is_named_with_its_origin_and_its_fault(site, target, message):
    site.module("leaving_parsers", "import sys\nsys.exit('nothing to do here')")
    site.distribution("faulty", {"tool_parsers": {"bad": target}}, version="0.3")
    with pytest.raises(PluginError, match=rf"^tool parser 'bad' of faulty 0\.3 \({target}\) {message}"):
        site.host().tool_parsers.get("bad")


def test_a_module_that_misses_its_extra_says_so_in_its_own_words(site):
    from vllm_mlx_core.api import MissingExtra

    site.module("needs_extra", "from vllm_mlx_core.api import MissingExtra\nraise MissingExtra('pip install acme[v]')")
    site.distribution("extra", {"tool_parsers": {"vision": "needs_extra:Parser"}})
    with pytest.raises(MissingExtra, match=r"^pip install acme\[v\]$"):
        site.host().tool_parsers.get("vision")


def test_a_hidden_name_is_neither_listed_nor_chosen(site):
    host = site.host("no:acme")
    assert host.tool_parsers.names() == []
    assert [entry.name for entry in host.tool_parsers.offers()] == ["acme"]
    with pytest.raises(PluginError, match=r"^tool parser 'acme' is switched off by --plugin no:acme\.$"):
        host.tool_parsers.get("acme")


def test_hiding_one_distribution_resolves_two_equal_names(site):
    site.distribution("rival", {"tool_parsers": {"acme": "good_parsers:Parser"}})
    assert site.host("no:acme@rival").tool_parsers.find("acme").distribution == "acme-parsers"
