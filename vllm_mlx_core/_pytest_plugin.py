"""pytest plugin (installed with the package): fixtures for plugin authors, and what their conformance suites did.

It is loaded in every pytest run of an environment that has vllm-mlx, so it imports nothing until a fixture is used.
Not in ``testing``: pytest could not rewrite the assertions of a package that is imported already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from vllm_mlx_core.host import Host

pytest.register_assert_rewrite("vllm_mlx_core.testing")

READINGS = "vllm_mlx_readings"
"""Name of a report's property: the suite of a test, its sample or "", and how many readings it did."""

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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Note in the report how many texts a test of a parser's suite has had read."""
    suites = sys.modules.get("vllm_mlx_core.testing._parser_suite")
    test = getattr(item, "instance", None)
    if suites is not None and isinstance(test, suites.ParserSuite):
        where, _, sample = item.nodeid.partition("[")
        item.user_properties.append((READINGS, [where.rpartition("::")[0], sample, test.readings]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much the suites of parsers have covered."""
    reports = (each for stats in terminalreporter.stats.values() for each in stats)
    ends = (each for each in reports if getattr(each, "when", "") == "teardown")
    found: list[Any] = [value for each in ends for name, value in each.user_properties if name == READINGS]
    if found:
        suites = {suite for suite, _, _ in found}
        samples = {(suite, sample) for suite, sample, _ in found if sample}
        readings = sum(count for _, _, count in found)
        terminalreporter.write_line(
            f"Parser conformance: {len(suites)} suites, {len(samples)} samples, {readings:,} readings"
        )
