"""List what is installed, by name and origin; --check also imports it. `plugins new` writes a package of your own."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from .scaffold import TEMPLATES, write_package

if TYPE_CHECKING:
    from vllm_mlx_core.host import Host

HELP = "list and check plugins, or start a new one"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options of the listing, and the command ``new``."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--check", action="store_true", help="import and verify everything; exit with 1 if something is broken"
    )
    actions = parser.add_subparsers(metavar="new", dest="action")
    new = actions.add_parser(
        "new",
        help="write a plugin package with tests",
        description="Write a package that offers one extension, with tests that pass as written.",
        allow_abbrev=False,
    )
    new.add_argument("name", metavar="NAME", help="what users will choose it by: lower-case words joined by hyphens")
    new.add_argument("--kind", required=True, choices=sorted(TEMPLATES), help="what the package offers")
    new.add_argument("--into", type=Path, default=Path(), metavar="DIR", help="folder to put it in (default: here)")


def run(args: Namespace, host: Host) -> int:
    """List or write; 1 if ``--check`` finds something broken."""
    if args.action == "new":
        folder = write_package(args.name, args.kind, args.into)
        print(f"Wrote {folder}. Next:\n\n  pip install -e {folder}\n  pytest {folder}\n  vllm-mlx plugins --check")
        return 0
    from vllm_mlx_core.host import report

    listing = report.rows(host, check=args.check)
    print(report.as_json(listing) if args.json else report.as_table(listing))
    return 1 if args.check and report.is_broken(listing) else 0
