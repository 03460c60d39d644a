"""Installed-looking distributions and hook plugins, made in a temporary folder."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

import pytest

from vllm_mlx_core.host import Host


class Site:
    """A folder on sys.path to which a test adds modules and distributions."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def module(self, name: str, source: str) -> None:
        (self.path / f"{name}.py").write_text(source, encoding="utf-8")
        importlib.invalidate_caches()

    def distribution(self, name: str, groups: Mapping[str, Mapping[str, str]], version: str = "1.0") -> None:
        """Add metadata such as an installer writes; a group is a kind, or empty for hook plugins."""
        info = self.path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
        lines = []
        for group, entries in groups.items():
            lines.append(f"[{'vllm_mlx.' + group if group else 'vllm_mlx'}]")
            lines += [f"{key} = {value}" for key, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")

    def entry_points(self) -> list[EntryPoint]:
        return [each for dist in distributions(path=[str(self.path)]) for each in dist.entry_points]

    def host(self, *requested: str, autoload: bool = True) -> Host:
        host = Host(self.entry_points())
        host.load(requested, autoload=autoload)
        return host


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield Site(folder)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


HookWriter = Callable[..., None]


@pytest.fixture
def hooks(site: Site) -> HookWriter:
    """Write a hook plugin module and, unless it is None, a distribution that offers it under the module's name."""

    def write(name: str, body: str, distribution: str | None = "") -> None:
        site.module(name, f"from vllm_mlx_core.api import *\nfrom vllm_mlx_core.api import hookimpl\n\n{body}\n")
        if distribution is not None:
            site.distribution(distribution or f"{name}-dist", {"": {name: name}})

    return write
