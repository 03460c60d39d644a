"""The fixtures that plugin authors get by having the package installed."""

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
