"""The project's own files, a wheel made of them, and virtual environments to install it into."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("vllm_mlx_core", "plugins", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def copy_tree(sources: tuple[str, ...], destination: Path) -> Path:
    """Copy parts of the project, so that no build or deliberate fault touches it."""
    destination.mkdir(parents=True, exist_ok=True)
    for name in sources:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", ".*")
            shutil.copytree(source, destination / name, ignore=ignored)
        else:
            shutil.copy(source, destination / name)
    return destination


def run(*command: str | Path, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command without this process's import paths; with ``check`` its failure fails the test and shows why."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", **options.pop("env", {})}
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=240, **options)
    if check and done.returncode:
        pytest.fail(f"{' '.join(words)} gave {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done


def build_wheel(source: Path, into: Path) -> Path:
    """Build a wheel of the project in ``source`` with the setuptools that is installed here."""
    options: list[str | Path] = [
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--disable-pip-version-check",
        "--wheel-dir",
        into,
    ]
    run(sys.executable, "-m", "pip", "wheel", *options, source)
    (wheel,) = into.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel."""
    source = copy_tree(SOURCES, tmp_path_factory.mktemp("source"))
    return build_wheel(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def acme_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package's wheel."""
    example = "docs/examples/acme-vllm-mlx-parsers"
    source = copy_tree((example,), tmp_path_factory.mktemp("acme"))
    return build_wheel(source / example, tmp_path_factory.mktemp("acme_wheel"))


class Environment:
    """A new virtual environment: the given wheels, and behind them the third-party packages of this one."""

    def __init__(self, path: Path, *wheels: Path) -> None:
        venv.create(path, with_pip=False)
        self.bin = path / "bin"
        pip: list[str | Path] = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            self.bin / "python",
            "--disable-pip-version-check",
        ]
        run(*pip, "install", "--no-deps", "--no-index", *wheels)
        (site_packages,) = path.glob("lib/python*/site-packages")
        # A line of a .pth file adds a folder, and does not run the .pth files in it: so the editable installation of
        # this project, which is one, stays out.
        (site_packages / "third_party.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        self.site_packages = site_packages

    def python(self, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        return run(self.bin / "python", *arguments, **options)


@pytest.fixture(scope="session")
def environment(wheel: Path, acme_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the project and the example package."""
    return Environment(tmp_path_factory.mktemp("environment"), wheel, acme_wheel)
