"""What ends up in site-packages."""

from __future__ import annotations

import zipfile

import pytest

pytestmark = pytest.mark.packaging

PACKAGES = {"vllm_mlx_core", "vllm_mlx_parsers", "vllm_mlx_models", "vllm_mlx_caches", "vllm_mlx_protocols"}


@pytest.fixture(scope="module")
def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_holds_exactly_the_five_packages(names):
    top_levels = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top_levels == PACKAGES


def test_the_wheel_holds_every_module_of_the_project(names, root):
    roots = (root, *(root / "plugins").iterdir())
    modules = {
        file.relative_to(source).as_posix()
        for source in roots
        for package in PACKAGES
        for file in (source / package).rglob("*.py")
    }
    assert {name for name in names if name.endswith(".py")} == modules


def test_nothing_is_called_plugins_or_tests(names):
    parts = {part for name in names for part in name.split("/")[:-1]}
    assert not parts & {"plugins", "tests"}


def test_every_package_says_that_it_is_typed(names):
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)


def test_the_templates_of_new_plugins_are_included(names, root):
    folder = "vllm_mlx_core/cli/scaffold/templates"
    templates = {f"{folder}/{file.name}" for file in (root / folder).iterdir()}
    assert templates <= set(names)
