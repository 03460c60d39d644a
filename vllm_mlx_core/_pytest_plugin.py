"""pytest plugin (installed with the package): fixtures for plugin authors.

It is loaded in every pytest run of an environment that has vllm-mlx, so it imports nothing until a fixture is used.
Not in ``testing``: pytest could not rewrite the assertions of a package that is imported already.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from vllm_mlx_core.host import Host

pytest.register_assert_rewrite("vllm_mlx_core.testing")

TinyModels: TypeAlias = Callable[[str], Path]


@pytest.fixture
def plugin_host() -> Host:
    """A host that sees nothing of what is installed: it holds what the test makes it load, and nothing else.

    It has not loaded anything: call ``plugin_host.load(["my_plugin_module"])``, once.
    """
    from vllm_mlx_core.host import Host

    return Host(entry_points=())


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    """A function from the name of an architecture ("llama", "qwen3") to a folder with a tiny random model of it.

    Each model is written once per session.
    """
    folders: dict[str, Path] = {}

    def folder(architecture: str) -> Path:
        if architecture not in folders:
            from vllm_mlx_core.testing import write_tiny_model

            path = tmp_path_factory.mktemp("tiny", numbered=True) / architecture
            folders[architecture] = write_tiny_model(architecture, path)
        return folders[architecture]

    return folder
