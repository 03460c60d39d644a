"""Write the command-line reference of the documentation: ``python -m vllm_mlx_core.cli.reference [FILE]``.

The text comes from the argument parser, so that it cannot say anything else than ``--help`` does. Options that plugins
add are not in it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from . import build_parser

DEFAULT_FILE = Path("docs/cli.md")

_HEAD = """\
<!-- Written by `python -m vllm_mlx_core.cli.reference`; change the parser, not this page. -->

# Command line
"""

_TAIL = """\
## Environment

- **`VLLM_MLX_API_KEY`**: the key that `serve` demands and `chat --url` sends, where `--api-key` is not given.
- **`VLLM_MLX_DISABLE_PLUGIN_AUTOLOAD`**: `1` loads, beside the built-in plugins, only those that `--plugin` names.
- **`VLLM_MLX_DEBUG`**: `1` prints the traceback of an error instead of one line.
- **`NO_COLOR`**: switches styles off.
- **`XDG_CACHE_HOME`**: where `vllm-mlx` keeps the demonstration model, converted GGUF files and, on Linux, compiled
  kernels (default: `~/.cache`).
- **`XDG_STATE_HOME`**: where `chat` keeps its history, in `vllm-mlx/chat_history` (default: `~/.local/state`).

## Exit codes

0 is success, 2 an option or a value that is wrong, 1 any other failure (a model or a plugin that cannot be had among
them), 130 an end by Ctrl-C, 141 an end because whoever read the output left (`| head`).
"""


def render() -> str:
    """Return the whole page."""
    return "\n".join([_HEAD, *_command(build_parser()), _TAIL])


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the section of one command, then those of its subcommands."""
    subparsers = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if parser.prog != "vllm-mlx":
        yield f"## `{parser.prog}`\n"
    if parser.description:
        yield f"{parser.description.strip()}\n"
    usage = " ".join(parser.format_usage().removeprefix("usage:").split())
    yield f"```text\n{usage}\n```\n"
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if _is_shown(action)]
        if not actions:
            continue
        if parser.prog != "vllm-mlx":
            yield f"### {(group.title or 'options').capitalize()}\n"
        if group.description:
            yield f"{group.description}\n"
        yield "\n".join(_entry(action, parser.prog) for action in actions) + "\n"
    for subparser in (command for action in subparsers for command in action.choices.values()):
        yield from _command(subparser)


def _is_shown(action: argparse.Action) -> bool:
    return action.help is not argparse.SUPPRESS and not isinstance(
        action, argparse._HelpAction | argparse._SubParsersAction
    )


def _entry(action: argparse.Action, prog: str) -> str:
    text = (action.help or "") % {**vars(action), "prog": prog}
    return f"- **`{_signature(action)}`**" + (f": {text}" if text else "")


def _signature(action: argparse.Action) -> str:
    """Return the option with its value, or the positional's name."""
    if action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    else:
        value = str(action.metavar or action.dest.upper())
    if not action.option_strings:
        return value
    options = ", ".join(action.option_strings)
    return options if action.nargs == 0 else f"{options} {value}"


def main(argv: list[str]) -> int:
    """Write the page to ``argv[0]``, by default ``docs/cli.md``."""
    file = Path(argv[0]) if argv else DEFAULT_FILE
    file.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
