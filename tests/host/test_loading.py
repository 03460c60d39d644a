"""Loading hook plugins: what is asked for must work, what is found may fail."""

from __future__ import annotations

import logging
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from vllm_mlx_core.api import Checkpoint, PluginError, Settings
from vllm_mlx_core.host import Host

CHOOSER = "@hookimpl\ndef vllm_mlx_choose_cache():\n    return __name__\n"


def states(host: Host) -> dict[str, str]:
    return {plugin.entry.name: plugin.state for plugin in host.plugins}


def choice(host: Host) -> str | None:
    return host.choose_cache(Checkpoint(Path("model")), "text", Settings())


def test_discovered_plugins_are_loaded_in_name_order_and_the_built_in_ones_are_asked_last(site, hooks):
    hooks("aaa", CHOOSER, "vllm-mlx-core")
    hooks("bbb", CHOOSER)
    hooks("ccc", CHOOSER)
    assert choice(site.host()) == "ccc"
    assert choice(site.host("no:ccc")) == "bbb"
    assert choice(site.host("no:ccc", "no:bbb")) == "aaa"


def test_requested_plugins_are_asked_first_the_last_one_foremost(site, hooks):
    for name in ("aaa", "bbb", "ccc"):
        hooks(name, CHOOSER)
    assert choice(site.host("bbb", "aaa")) == "aaa"
    assert choice(site.host("aaa", "bbb")) == "bbb"


def test_asking_twice_for_one_plugin_is_as_good_as_once(site, hooks):
    hooks("aaa", CHOOSER)
    assert states(site.host("aaa", "aaa", "aaa@aaa-dist")) == {"aaa": "active"}


def test_a_discovered_plugin_can_be_asked_for_by_its_module(site, hooks):
    site.module("chooser_module", f"from vllm_mlx_core.api import hookimpl\n{CHOOSER}")
    site.distribution("dist", {"": {"short": "chooser_module"}})
    host = site.host("chooser_module")
    assert [(plugin.entry.name, plugin.requested) for plugin in host.plugins] == [("short", True)]


def test_a_module_that_nobody_declares_is_a_plugin_if_asked_for(site, hooks):
    hooks("lonely", CHOOSER, None)
    host = site.host("lonely")
    assert choice(host) == "lonely"
    assert host.plugins[0].entry.distribution == "module"


def test_one_file_is_a_plugin(site, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\nfrom vllm_mlx_core.api import hookimpl\n\n"
        "@dataclass\nclass Answer:\n    text: 'str' = 'from a file'\n\n"
        "@hookimpl\ndef vllm_mlx_choose_cache():\n    return Answer().text\n"
    )
    host = site.host(str(file))
    assert choice(host) == "from a file"
    assert host.plugins[0].entry.distribution == "file"


def test_two_files_of_one_name_are_two_plugins(site, tmp_path):
    paths = []
    for folder, answer in (("a", "None"), ("b", "'second'")):
        path = tmp_path / folder / "mine.py"
        path.parent.mkdir()
        path.write_text(
            f"from vllm_mlx_core.api import hookimpl\n@hookimpl\ndef vllm_mlx_choose_cache():\n    return {answer}\n"
        )
        paths.append(str(path))
    host = site.host(*reversed(paths))
    assert choice(host) == "second"
    assert len(host.plugins) == 2


def test_a_plugin_may_be_an_object(site):
    site.module(
        "object_plugin",
        "from vllm_mlx_core.api import hookimpl\n\nclass Plugin:\n    @hookimpl\n"
        "    def vllm_mlx_choose_cache(self, family):\n        return f'for {family}'\n\nplugin = Plugin()\n",
    )
    site.distribution("dist", {"": {"thing": "object_plugin:plugin"}})
    assert choice(site.host()) == "for text"


def test_without_autoload_only_built_in_and_requested_plugins_are_loaded(site, hooks):
    hooks("inner", CHOOSER, "vllm-mlx-core")
    hooks("asked", CHOOSER)
    hooks("other", CHOOSER)
    host = site.host("asked", autoload=False)
    assert states(host) == {"asked": "active", "inner": "active", "other": "off"}
    assert "other" not in sys.modules


@pytest.mark.parametrize(("value", "state"), [("1", "off"), ("0", "active"), ("", "active")])
def test_the_environment_disables_autoload(site, hooks, monkeypatch, value, state):
    hooks("other", CHOOSER)
    monkeypatch.setenv("VLLM_MLX_DISABLE_PLUGIN_AUTOLOAD", value)
    host = Host(site.entry_points())
    host.load()
    assert states(host) == {"other": state}


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ("nothing_like_it", r"Plugin 'nothing_like_it' cannot be loaded: there is no such plugin or module\."),
        ("workng", r"Plugin 'workng' cannot be loaded: there is no such plugin or module\. Did you mean 'working'\?"),
        ("working.inner", r"Plugin 'working.inner' cannot be loaded: there is no .* module\. Did you mean 'working'\?"),
        ("./missing.py", r"Plugin './missing.py' cannot be loaded: There is no file .*missing\.py\."),
        ("./", r"Plugin './' cannot be loaded: There is no file .*"),
        ("raising", r"Plugin 'raising' of raising-dist 1\.0 cannot be loaded: ZeroDivisionError: division by zero"),
        ("leaving", r"Plugin 'leaving' of leaving-dist 1\.0 cannot be loaded: SystemExit: nothing to do here"),
        ("importing", r"Plugin 'importing' of .* cannot be loaded: ModuleNotFoundError: No module named 'gone'"),
        ("lonely", r"Plugin 'lonely' cannot be loaded: ModuleNotFoundError: No module named 'gone'"),
        ("typo", r"Plugin 'typo' .* cannot be used: there is no hook vllm_mlx_mont\. Did you mean 'vllm_mlx_mount'\?"),
        ("argument", r"Plugin 'argument' .* cannot be used: .*\{'colour'\} are declared in the hookimpl but .*"),
        ("unmarked", r"Plugin 'unmarked' .* cannot be used: vllm_mlx_mount is not marked with @hookimpl"),
        ("empty", r"Plugin 'empty' .* cannot be used: it implements no hook"),
        (
            "wrapper",
            r"Plugin 'wrapper' .* cannot be used: vllm_mlx_choose_cache is a hook wrapper, and those are not .*",
        ),
        ("waiting", r"Plugin 'waiting' .* cannot be used: vllm_mlx_shutdown is async, and hooks are plain functions"),
        ("klass", r"Plugin 'klass' .* cannot be used: Plugin is a class; a plugin is a module or an instance"),
        ("again", r"Plugin 'again' .* cannot be used: it is loaded already, as 'working'"),
        ("offering", r"Plugin 'offering' failed in vllm_mlx_register: KeyError: 'x'"),
    ],
)
def test_a_requested_plugin_that_fails_is_an_error_in_one_line(site, hooks, requested, message):
    write_faulty_plugins(site, hooks)
    with pytest.raises(PluginError, match=rf"^{message}$"):
        site.host(requested, autoload=requested == "again")


def write_faulty_plugins(site: Any, hooks: Any) -> None:
    hooks("working", CHOOSER)
    hooks("raising", "1 / 0")
    hooks("leaving", "import sys\nsys.exit('nothing to do here')")
    hooks("importing", "import gone")
    hooks("lonely", "import gone", None)
    hooks("typo", "@hookimpl\ndef vllm_mlx_mont(app):\n    pass")
    hooks("argument", "@hookimpl\ndef vllm_mlx_mount(colour):\n    pass")
    hooks("unmarked", "def vllm_mlx_mount(app):\n    pass")
    hooks("empty", "")
    hooks("wrapper", "@hookimpl(wrapper=True)\ndef vllm_mlx_choose_cache():\n    return (yield)")
    hooks("waiting", "@hookimpl\nasync def vllm_mlx_shutdown():\n    pass")
    hooks("offering", "@hookimpl\ndef vllm_mlx_register(registrar):\n    raise KeyError('x')")
    site.module(
        "klass",
        "from vllm_mlx_core.api import hookimpl\nclass Plugin:\n    @hookimpl\n    def vllm_mlx_shutdown(self): ...",
    )
    site.distribution("klass-dist", {"": {"klass": "klass:Plugin"}})
    site.distribution("again-dist", {"": {"again": "working"}})


def test_a_discovered_plugin_that_fails_is_left_out_with_a_warning_and_the_rest_works(site, hooks, caplog):
    write_faulty_plugins(site, hooks)
    host = site.host()
    # "again" and "working" are one module: the first name gets it
    assert {name for name, state in states(host).items() if state == "active"} == {"again"}
    assert choice(host) == "working"
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 12
    assert all(message.endswith(" It is left out.") for message in warnings)
    broken = {plugin.entry.name: plugin.detail for plugin in host.plugins if plugin.state == "broken"}
    assert broken["typo"].endswith("there is no hook vllm_mlx_mont. Did you mean 'vllm_mlx_mount'?")
    assert broken["raising"].endswith("ZeroDivisionError: division by zero")


def test_an_optional_hook_of_a_newer_version_is_no_typo(site, hooks):
    hooks("modern", "@hookimpl(optionalhook=True)\ndef vllm_mlx_from_the_future():\n    pass")
    assert states(site.host()) == {"modern": "active"}


def test_an_implementation_may_have_a_name_of_its_own(site, hooks):
    hooks("renamed", "@hookimpl(specname='vllm_mlx_choose_cache')\ndef pick():\n    return 'renamed'")
    assert choice(site.host()) == "renamed"


def test_a_failed_file_leaves_no_half_made_module_behind(site, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("1 / 0")
    with pytest.raises(PluginError):
        site.host(str(file))
    assert not [name for name in sys.modules if name.startswith("vllm_mlx_plugin_mine")]


def test_a_folder_or_a_text_file_is_no_plugin(site, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("")
    with pytest.raises(PluginError, match=r"notes\.txt is not a Python file\.$"):
        site.host(str(file))


def test_two_hook_plugins_of_one_name_are_an_error_that_names_both(site, hooks):
    hooks("acme", CHOOSER, "one")
    site.distribution("two", {"": {"acme": "acme"}})
    message = r"^Plugin 'acme' is offered more than once; choose --plugin acme@(one|two) or --plugin acme@(one|two)\.$"
    with pytest.raises(PluginError, match=message):
        site.host()
    with pytest.raises(PluginError, match=message):
        site.host("acme")


def test_asking_for_one_of_two_equal_names_leaves_the_other_out(site, hooks):
    hooks("acme", CHOOSER, "one")
    site.distribution("two", {"": {"acme": "acme"}})
    host = site.host("acme@two")
    assert {plugin.entry.distribution: (plugin.state, plugin.detail) for plugin in host.plugins} == {
        "one": ("blocked", "acme@two was asked for instead"),
        "two": ("active", ""),
    }


def test_a_name_that_is_switched_off_is_not_imported(site, hooks):
    hooks("acme", CHOOSER)
    host = site.host("no:acme")
    assert states(host) == {"acme": "blocked"}
    assert "acme" not in sys.modules
    assert choice(host) is None


def test_switching_off_what_does_not_exist_is_an_error_with_a_suggestion(site, hooks):
    hooks("acme", CHOOSER)
    with pytest.raises(PluginError, match=r"^--plugin no:acne matches nothing\. Did you mean 'acme'\?$"):
        site.host("no:acne")
    with pytest.raises(PluginError, match=r"^--plugin no:acme@elsewhere matches nothing\. Did you mean 'acme'\?$"):
        site.host("no:acme@elsewhere")


def test_asking_for_a_plugin_and_switching_it_off_is_an_error(site, hooks):
    hooks("acme", CHOOSER)
    with pytest.raises(PluginError, match=r"^Plugin 'acme' is both asked for and switched off\.$"):
        site.host("acme", "no:acme")


PARSER = """
class Parser(ToolParser):
    def feed(self, chunk):
        return ()

    def finish(self):
        return ()
"""


def test_a_plugin_offers_extensions_without_entry_points(site, hooks):
    hooks(
        "offers",
        f"{PARSER}\n@hookimpl\ndef vllm_mlx_register(registrar):\n"
        "    registrar.add('tool_parsers', 'by_class', Parser)\n"
        "    registrar.add('tool_parsers', 'by_path', 'offers:Parser')\n",
    )
    registry = site.host().tool_parsers
    assert registry.get("by_class") is registry.get("by_path")
    assert [(e.name, e.distribution, e.version, e.target_path) for e in registry] == [
        ("by_class", "offers-dist", "1.0", "offers:Parser"),
        ("by_path", "offers-dist", "1.0", "offers:Parser"),
    ]


def test_what_an_uninstalled_plugin_offers_is_known_by_the_plugin_and_can_be_switched_off(site, hooks):
    offer = "\n@hookimpl\ndef vllm_mlx_register(registrar):\n    registrar.add('tool_parsers', 'acme', Parser)\n"
    hooks("lonely", PARSER + offer, None)
    assert [entry.selector for entry in site.host("lonely").tool_parsers] == ["acme@lonely"]
    assert site.host("lonely", "no:acme").tool_parsers.names() == []


@pytest.mark.parametrize(
    ("offer", "message"),
    [
        ("'tool_parser', 'x', 'a:B'", "not a kind of extension. Did you mean 'tool_parsers'?"),
        ("'tool_parsers', 'x', 'just_a_module'", "tool parser 'x' of bad-dist 1.0 (just_a_module) is not of the form"),
        (
            "'tool_parsers', 'x', dict",
            "tool parser 'x' of bad-dist 1.0 (builtins:dict) is not a subclass of ToolParser.",
        ),
        ("'tool_parsers', 'x', 5", "tool parser 'x' of bad-dist 1.0 (5) is not a subclass of ToolParser."),
        ("'tool_parsers', 5, Parser", "has a name that nobody can choose."),
        ("'tool_parsers', '', Parser", "has a name that nobody can choose."),
        ("'tool_parsers', 'x@y', Parser", "has a name that nobody can choose."),
        ("'tool_parsers', 'x y', Parser", "has a name that nobody can choose."),
    ],
)
def test_an_impossible_offer_breaks_the_plugin_and_takes_none_of_its_offers(site, hooks, caplog, offer, message):
    hooks(
        "bad",
        f"{PARSER}\n@hookimpl\ndef vllm_mlx_register(registrar):\n    registrar.add('tool_parsers', 'fine', Parser)\n"
        f"    registrar.add({offer})\n",
    )
    host = site.host()
    (plugin,) = host.plugins
    assert plugin.state == "broken"
    assert message in plugin.detail
    assert message in caplog.text
    assert host.tool_parsers.names() == []


def test_entry_points_without_a_distribution_are_accepted(site, hooks):
    hooks("loose", CHOOSER, None)
    host = Host([EntryPoint("loose", "loose", "vllm_mlx")])
    host.load()
    assert [plugin.entry.distribution for plugin in host.plugins] == ["unknown"]


def test_what_is_installed_is_discovered_once_for_each_distribution(site, hooks, monkeypatch, tmp_path):
    hooks("acme", CHOOSER, "acme-dist")
    shadowed = tmp_path / "shadowed"
    shadowed.mkdir()
    type(site)(shadowed).distribution("acme-dist", {"": {"old": "old"}}, version="0.1")
    monkeypatch.setattr(sys, "path", [str(site.path), str(shadowed), *sys.path])
    host = Host()
    host.load()
    assert states(host)["acme"] == "active"
    assert "old" not in states(host)


def test_the_fixture_host_sees_nothing_that_is_installed(plugin_host):
    plugin_host.load()
    assert plugin_host.plugins == []
    assert [list(registry) for registry in plugin_host.registries.values()] == [[]] * 5
