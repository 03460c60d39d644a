"""What pyproject.toml declares is what is installed, and can be imported."""

from __future__ import annotations

from importlib.metadata import distribution

import pytest

REINSTALL = "Entry points are frozen when a project is installed; run: pip install -e . --no-deps"


@pytest.fixture(scope="module")
def installed():
    return {(each.group, each.name): each for each in distribution("vllm-mlx-core").entry_points}


def test_declared_entry_points_are_installed(pyproject, installed):
    project = pyproject["project"]
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    declared = {(group, name): value for group, entries in groups.items() for name, value in entries.items()}
    assert {key: each.value for key, each in installed.items()} == declared, REINSTALL


def test_installed_entry_points_can_be_imported(installed):
    failures = {}
    for (group, name), each in installed.items():
        try:
            each.load()
        except Exception as error:
            failures[f"{group} {name}"] = repr(error)
    assert failures == {}, REINSTALL


def test_every_kind_of_extension_has_a_built_in_one(installed):
    from typing import get_args

    from vllm_mlx_core.api import Kind

    assert {f"vllm_mlx.{kind}" for kind in get_args(Kind)} <= {group for group, _ in installed}
