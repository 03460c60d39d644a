"""What plugin authors get in pytest by having the package installed."""

from __future__ import annotations

import json
import sys

from .conftest import run


def test_a_run_that_uses_no_fixture_imports_nothing_of_the_package(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n\ndef test_nothing():\n"
        "    loaded = {name for name in sys.modules if name.startswith('vllm_mlx')}\n"
        "    assert loaded == {'vllm_mlx_core', 'vllm_mlx_core._pytest_plugin'}\n"
        "    assert not {'mlx', 'fastapi'} & set(sys.modules)\n",
        encoding="utf-8",
    )
    run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path, cwd=tmp_path)


def test_a_plugin_author_can_load_a_plugin_into_an_empty_host(plugin_host, tmp_path):
    file = tmp_path / "acme.py"
    file.write_text(
        "from vllm_mlx_core.api import hookimpl\n\n@hookimpl\ndef vllm_mlx_register(registrar):\n"
        "    registrar.add('cache_policies', 'acme', 'acme:Acme')\n",
        encoding="utf-8",
    )
    plugin_host.load([str(file)])
    assert plugin_host.cache_policies.names() == ["acme"]
    assert plugin_host.tool_parsers.names() == []


def test_a_tiny_model_is_a_checkpoint_that_is_written_once(tiny_model):
    folder = tiny_model("llama")
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"] == "llama"
    assert tiny_model("llama") == folder
    assert tiny_model("qwen3") != folder


SUITE = """
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.hermes import HermesToolParser

CALL = '<tool_call>{"name": "f"}</tool_call>'

class TestHermes(ToolParserSuite):
    parser = HermesToolParser
    samples = (ToolSample(CALL, calls=[("f", {})]), ToolSample("a::b" + CALL, "a::b", [("f", {})]))

class TestOfSomethingElse:
    readings = 7

    def test_same_at_every_cut(self):
        pass
"""


def test_a_run_with_suites_of_parsers_says_how_much_they_covered(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "test_hermes.py").write_text(SUITE, encoding="utf-8")
    for workers in ("0", "2"):
        options = ("-q", "-p", "no:cacheprovider", "-n", workers, "-k", "same_at_every_cut")
        told = run(sys.executable, "-m", "pytest", *options, tmp_path, cwd=tmp_path).stdout
        assert "\nParser conformance: 1 suites, 2 samples, 14 readings\n" in told  # whole, and cut in six widths
