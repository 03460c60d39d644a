"""Starting a plugin package: ``vllm-mlx plugins new``. The files in ``templates`` are ``string.Template`` texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from vllm_mlx_core import __version__
from vllm_mlx_core.api.errors import UsageError
from vllm_mlx_core.api.hooks import Kind

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class KindTemplate:
    """What differs between the kinds: the registry, the interface that is implemented, and how it is chosen."""

    registry: Kind
    interface: str
    usage: str
    """How a user chooses it; the name takes the place of ``NAME``."""
    requirements: tuple[str, ...] = ()


TEMPLATES = {
    "cache-policy": KindTemplate("cache_policies", "CachePolicy", "vllm-mlx serve --cache NAME"),
    "model-family": KindTemplate(
        "model_families",
        "ModelFamily",
        "vllm-mlx serve DIR, where DIR/config.json says the model_type NAME",
        ("mlx-lm",),
    ),
    "protocol": KindTemplate("protocols", "ProtocolFrontend", "vllm-mlx serve --protocol NAME", ("fastapi",)),
    "reasoning-parser": KindTemplate("reasoning_parsers", "ReasoningParser", "vllm-mlx serve --reasoning-parser NAME"),
    "tool-parser": KindTemplate("tool_parsers", "ToolParser", "vllm-mlx serve --tool-call-parser NAME"),
}
"""By the name of ``--kind``."""


def write_package(name: str, kind: str, into: Path) -> Path:
    """Write a package that offers ``name``, one of ``kind``, into a new folder of ``into``; return that folder.

    Raises UsageError if the name is unfit or the folder exists.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a plugin: use lower-case words and digits joined by hyphens.")
    distribution = f"{name}-vllm-mlx"
    folder = into / distribution
    if folder.exists():
        raise UsageError(f"{folder} exists already.")
    try:
        for path, text in _render(name, kind, distribution):
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.") from error
    return folder


def _render(name: str, kind: str, distribution: str) -> Iterator[tuple[str, str]]:
    """Yield the package's files: relative path and text."""
    template = TEMPLATES[kind]
    module = distribution.replace("-", "_")
    major, minor, *_ = __version__.split(".")
    requirements = (f"vllm-mlx-core>={__version__},<{major}.{int(minor) + 1}", *template.requirements)
    values = {
        "name": name,
        "kind": kind.replace("-", " "),
        "distribution": distribution,
        "module": module,
        "class_name": "".join(word.capitalize() for word in name.split("-")) + template.interface,
        "group": f"vllm_mlx.{template.registry}",
        "usage": template.usage.replace("NAME", name),
        "requirements": "".join(f'  "{requirement}",\n' for requirement in requirements),
    }
    stem = kind.replace("-", "_")
    for path, source in (
        ("pyproject.toml", "pyproject.toml"),
        ("README.md", "README.md"),
        (f"{module}.py", f"{stem}.py"),
        (f"tests/test_{module}.py", f"test_{stem}.py"),
    ):
        text = files(__name__).joinpath("templates", f"{source}.in").read_text(encoding="utf-8")
        yield path, Template(text).substitute(values)
