"""``vllm-mlx plugins``, and how every command starts and fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_mlx_core import __version__
from vllm_mlx_core import cli as command_line
from vllm_mlx_core.api import PluginError, UsageError
from vllm_mlx_core.cli import COMMANDS, build_parser, main
from vllm_mlx_core.cli import plugins as plugins_command
from vllm_mlx_core.host import Host

HEAVY = ("mlx", "mlx_lm", "transformers", "fastapi", "starlette", "uvicorn", "jsonschema")


@pytest.fixture(autouse=True)
def _no_third_party_plugins(monkeypatch):
    monkeypatch.setenv("VLLM_MLX_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("VLLM_MLX_DEBUG", raising=False)


@pytest.fixture
def plugin_file(tmp_path):
    def write(body: str) -> str:
        path = tmp_path / "acme.py"
        path.write_text(f"from vllm_mlx_core.api import *\nfrom vllm_mlx_core.api import hookimpl\n\n{body}\n")
        return str(path)

    return write


@pytest.mark.parametrize(
    "argv", [["--help"], ["--version"], ["plugins"], ["plugins", "--json"], *([name, "--help"] for name in COMMANDS)]
)
def test_help_and_listing_import_neither_mlx_nor_the_web_stack(argv):
    code = (
        "import sys\nfrom vllm_mlx_core.cli import main\n"
        f"try:\n    code = main({argv!r})\nexcept SystemExit as exit:\n    code = exit.code\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "print(heavy, file=sys.stderr)\nsys.exit(bool(heavy) or code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_listing_names_the_built_in_plugins(capsys):
    assert main(["plugins"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["KIND", "NAME", "DISTRIBUTION", "VERSION", "STATE", "TARGET"]
    assert ["reasoning_parsers", "vllm-mlx-core", __version__, "available"] in [
        [line[0], *(word for word in line[1:] if word in ("vllm-mlx-core", __version__, "available"))] for line in lines
    ]
    assert any(line[:2] == ["tool_parsers", "hermes"] for line in lines)


def test_the_listing_as_json_can_be_parsed(capsys):
    assert main(["plugins", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"hooks", "tool_parsers", "model_families", "cache_policies", "protocols"} <= {row["kind"] for row in rows}


def test_a_check_fails_if_something_is_broken_and_a_listing_does_not(capsys, plugin_file):
    broken = plugin_file(
        "@hookimpl\ndef vllm_mlx_register(registrar):\n    registrar.add('tool_parsers', 'bad', 'no_such_module:X')"
    )
    assert main(["plugins", "--plugin", broken]) == 0
    assert main(["plugins", "--check", "--plugin", broken]) == 1
    assert "No module named 'no_such_module'" in capsys.readouterr().out


def test_the_built_in_plugins_pass_the_check(capsys):
    assert main(["plugins", "--check"]) == 0, capsys.readouterr().out


def test_switching_a_name_off_shows_in_the_listing(capsys):
    assert main(["plugins", "--json", "--plugin", "no:hermes"]) == 0
    states = {row["name"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states["hermes"] == "blocked"


def test_plugins_add_options_to_serve_and_to_nothing_else(plugin_file, capsys):
    file = plugin_file(
        "@hookimpl\ndef vllm_mlx_add_options(parser):\n    parser.add_argument('--colour', help='a shade of grey')"
    )
    with pytest.raises(SystemExit, match="0"):
        main(["serve", "--plugin", file, "--help"])
    assert "a shade of grey" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["plugins", "--plugin", file, "--colour", "red"])


def test_the_parser_of_a_host_has_its_options(plugin_file):
    file = plugin_file("@hookimpl\ndef vllm_mlx_add_options(parser):\n    parser.add_argument('--colour')")
    host = Host()
    host.load([file])
    assert build_parser(host).parse_args(["serve", "--colour", "red"]).colour == "red"


def test_plugins_are_found_wherever_they_stand_before_a_double_dash(plugin_file, capsys):
    file = plugin_file("@hookimpl\ndef vllm_mlx_add_options(parser):\n    parser.add_argument('--colour')")
    with pytest.raises(SystemExit, match="0"):
        main(["serve", "model", "--port", "1", f"--plugin={file}", "--help"])
    assert "--colour" in capsys.readouterr().out


def test_a_requested_plugin_that_fails_is_one_line_and_exit_code_1(capsys):
    assert main(["plugins", "--plugin", "no.such.plugin"]) == 1
    assert capsys.readouterr().err == (
        "vllm-mlx: Plugin 'no.such.plugin' cannot be loaded: there is no such plugin or module.\n"
    )


@pytest.mark.parametrize(("error", "code"), [(UsageError("Do\nthis."), 2), (PluginError("Do\nthis."), 1)])
def test_an_error_is_one_line_and_its_kind_decides_the_exit_code(monkeypatch, capsys, error, code):
    def run(args, host):
        raise error

    monkeypatch.setattr(plugins_command, "run", run)
    assert main(["plugins"]) == code
    assert capsys.readouterr().err == "vllm-mlx: Do this.\n"


def test_debug_prints_the_traceback(monkeypatch, capsys):
    def run(args, host):
        raise PluginError("Do this.")

    monkeypatch.setattr(plugins_command, "run", run)
    monkeypatch.setenv("VLLM_MLX_DEBUG", "1")
    assert main(["plugins"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_unexpected_exception_is_not_hidden(monkeypatch):
    def run(args, host):
        raise ZeroDivisionError

    monkeypatch.setattr(plugins_command, "run", run)
    with pytest.raises(ZeroDivisionError):
        main(["plugins"])


def test_an_interrupt_is_exit_code_130(monkeypatch, capsys):
    def run(args, host):
        raise KeyboardInterrupt

    monkeypatch.setattr(plugins_command, "run", run)
    assert main(["plugins"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("argv", [[], ["paint"], ["plugins", "--colour"], ["plugins", "--jso"], ["serve", "--plugin"]])
def test_a_command_line_that_makes_no_sense_is_exit_code_2(argv, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    assert "usage: vllm-mlx" in capsys.readouterr().err


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"vllm-mlx {__version__}\n"


def test_the_package_can_be_run_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "vllm_mlx_core", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"vllm-mlx {__version__}\n"


def test_every_command_keeps_the_contract():
    for name in command_line.COMMANDS:
        module = __import__(f"vllm_mlx_core.cli.{name}", fromlist=["run"])
        assert module.HELP
        assert "\n" not in module.HELP
        assert module.__doc__
        assert callable(module.add_arguments)
        assert callable(module.run)


@pytest.mark.parametrize("name", ["Acme", "acme_tools", "1acme", "-acme", "acme-", "", "a b", "../acme"])
def test_a_name_that_cannot_be_one_is_refused(name, tmp_path, capsys):
    assert main(["plugins", "new", "--kind", "tool-parser", "--into", str(tmp_path), "--", name]) == 2
    assert "is no name for a plugin" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_left_alone(tmp_path, capsys):
    argv = ["plugins", "new", "acme", "--kind", "tool-parser", "--into", str(tmp_path)]
    assert main(argv) == 0
    assert f"pip install -e {tmp_path / 'acme-vllm-mlx'}" in capsys.readouterr().out
    before = (tmp_path / "acme-vllm-mlx" / "README.md").stat().st_mtime_ns
    assert main(argv) == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "acme-vllm-mlx" / "README.md").stat().st_mtime_ns == before


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    assert main(["plugins", "new", "acme", "--kind", "tool-parser", "--into", str(file)]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_package_goes_into_the_current_folder_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plugins", "new", "acme", "--kind", "cache-policy"]) == 0
    assert sorted(os.listdir(tmp_path / "acme-vllm-mlx")) == [
        "README.md",
        "acme_vllm_mlx.py",
        "pyproject.toml",
        "tests",
    ]
    assert Path("acme-vllm-mlx/tests/test_acme_vllm_mlx.py").is_file()
