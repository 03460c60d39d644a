import argparse
from pathlib import Path

import pytest

from vllm_mlx_core.cli import COMMANDS, build_parser, reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_in_the_documentation_is_what_the_parser_says():
    assert PAGE.read_text(encoding="utf-8") == reference.render(), (
        "docs/cli.md is stale: run python -m vllm_mlx_core.cli.reference"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_section(command):
    assert f"\n## `vllm-mlx {command}`\n" in reference.render()


def test_every_option_of_every_command_is_described():
    text = reference.render()
    (commands,) = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    for parser in commands.choices.values():
        for action in parser._actions:
            for option in action.option_strings:
                assert option in ("-h", "--help") or option in text


def test_it_is_written_where_one_says(tmp_path):
    file = tmp_path / "page.md"
    assert reference.main([str(file)]) == 0
    assert file.read_text(encoding="utf-8") == reference.render()
