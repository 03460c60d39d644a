"""Options that commands share, by group, and what the parsed ones become.

Defaults live in ``vllm_mlx_core.api`` only, so that the command line and the Python interface cannot differ.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from vllm_mlx_core.api import LoadOptions, Progress, SamplingParams, no_progress

from . import values

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

_load = LoadOptions()


def add_model(parser: ArgumentParser, what: str) -> None:
    """Declare the optional positional MODEL; ``what`` is the verb phrase of its help."""
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        type=values.name,
        help=f"model to {what}: a folder, a .gguf file or a hub id; without it, the small built-in demonstration model",
    )


def add_loading(parser: ArgumentParser) -> None:
    """Declare how a model is found and loaded."""
    group = parser.add_argument_group("finding and loading the model")
    group.add_argument("--revision", metavar="REV", type=values.name, help="branch, tag or commit on the hub")
    group.add_argument(
        "--download-timeout",
        metavar="SECONDS",
        type=values.number(0, above=True),
        default=_load.download_timeout_s,
        help="give up on one file's download after this long without an answer (default: %(default)g)",
    )
    group.add_argument(
        "--download-retries",
        metavar="N",
        type=values.integer(0),
        default=_load.download_retries,
        help="further attempts after a failed download (default: %(default)s)",
    )
    group.add_argument("--offline", action="store_true", help="use only what is on this machine; never ask the hub")
    group.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run Python code that comes with the checkpoint; only for checkpoints you trust",
    )
    group.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        help="precision of the weights (default: as stored; float32 on a CPU)",
    )
    group.add_argument(
        "--chat-template",
        metavar="FILE",
        type=values.text_file,
        help="Jinja file that replaces the checkpoint's chat template",
    )


def add_reasoning(parser: ArgumentParser) -> None:
    """Declare how reasoning is told from the answer, for commands that offer the model no tools."""
    add_reasoning_parser(parser.add_argument_group("output parsing"))


def add_reasoning_parser(group: _ArgumentGroup) -> None:
    """Declare the choice of a reasoning parser in ``group``. Mutates."""
    group.add_argument(
        "--reasoning-parser",
        metavar="NAME",
        type=values.name,
        help='parser of reasoning, "none", or "auto", the default, to choose by the model',
    )


def add_sampling(parser: ArgumentParser) -> None:
    """Declare the sampling values of a command that asks a model itself."""
    group = parser.add_argument_group("sampling", "What is not said here is left to the model.")
    group.add_argument(
        "--max-tokens",
        metavar="TOKENS",
        type=values.integer(1),
        help="longest answer (default: what the context leaves)",
    )
    group.add_argument("--temperature", metavar="X", type=values.number(0), help="0 always takes the most likely token")
    group.add_argument("--top-p", metavar="X", type=values.number(0, 1, above=True), help="1 is off")
    group.add_argument(
        "--seed", metavar="N", type=values.integer(0, 2**63 - 1), help="makes answers repeatable (default: random)"
    )
    group.add_argument(
        "--chat-template-kwargs",
        metavar="JSON",
        type=values.json_object,
        default={},
        help="chat template variables, such as '{\"enable_thinking\": false}'",
    )


def load_options(args: Namespace, progress: Progress = no_progress) -> LoadOptions:
    """Return what ``add_loading`` declared."""
    return LoadOptions(
        revision=args.revision,
        offline=args.offline,
        trust_remote_code=args.trust_remote_code,
        download_timeout_s=args.download_timeout,
        download_retries=args.download_retries,
        dtype=args.dtype,
        chat_template=args.chat_template,
        progress=progress,
    )


def sampling_params(args: Namespace) -> SamplingParams:
    """Return what ``add_sampling`` declared, for a model in this process."""
    return SamplingParams(max_tokens=args.max_tokens, temperature=args.temperature, top_p=args.top_p, seed=args.seed)


def sampling_body(args: Namespace) -> dict[str, Any]:
    """Return what ``add_sampling`` declared, as fields of a request to a server; what was not said is left out."""
    fields = {
        "max_tokens": args.max_tokens,
        "temperature": args.temperature,
        "top_p": args.top_p,
        "seed": args.seed,
        "chat_template_kwargs": args.chat_template_kwargs or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def unless_auto(parser: str | None) -> str | None:
    """Return the name of a parser, or None where it shall be chosen."""
    return None if parser == "auto" else parser
