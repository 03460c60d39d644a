"""Write the tables of built-in parsers into the documentation: ``python -m vllm_mlx_core.cli.parser_tables [PAGE]``.

Names come from the entry points, all else from the classes, so that a table cannot say anything else than the code.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from vllm_mlx_core.api import ReasoningParser, ToolParser
from vllm_mlx_core.api.hooks import Kind
from vllm_mlx_core.host import Host, report

DEFAULT_PAGE = Path("docs/parsers.md")
KINDS: tuple[Kind, ...] = ("tool_parsers", "reasoning_parsers")
BEGIN = "<!-- {kind}: written by `python -m vllm_mlx_core.cli.parser_tables`; change the parsers, not this table. -->"
END = "<!-- end of {kind} -->"


def table(kind: Kind) -> str:
    """Return the table of the parsers of one kind that come with this package, as Markdown."""
    return "\n".join(_lines(kind))


def fill_in(page: str) -> str:
    """Return a page with its tables replaced. Raises ValueError if it has no place for one of them."""
    for kind in KINDS:
        opening, closing = BEGIN.format(kind=kind), END.format(kind=kind)
        before, begin, rest = page.partition(opening)
        _, end, after = rest.partition(closing)
        if not (begin and end):
            raise ValueError(f"The page has no place for a table between {opening!r} and {closing!r}.")
        page = f"{before}{opening}\n\n{table(kind)}\n\n{closing}{after}"
    return page


def main(arguments: list[str]) -> int:
    """Write the tables."""
    page = Path(arguments[0]) if arguments else DEFAULT_PAGE
    page.write_text(fill_in(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def _lines(kind: Kind) -> Iterator[str]:
    host = Host()
    registry = host.registries[kind]
    calls = kind == "tool_parsers"
    own = distribution("vllm-mlx-core").name
    yield "| parser | also called | models | a completion |" + (" text around calls |" if calls else "")
    yield "|---|---|---|---|" + ("---|" if calls else "")
    for row in report.rows(host):
        if row.kind != kind or row.distribution != own:
            continue
        parser = registry.get(f"{row.name}@{own}")
        assert issubclass(parser, ToolParser | ReasoningParser)
        aliases = ", ".join(f"`{alias}`" for alias in row.aliases)
        cells = [f"`{row.name}`", aliases, parser.families, _code(parser.sample)]
        if issubclass(parser, ToolParser):
            cells.append(parser.surroundings)
        yield f"| {' | '.join(cells)} |"


def _code(sample: str) -> str:
    """Return a sample for a cell: code whose lines stay lines and whose bars end no cell."""
    escaped = html.escape(sample.strip("\n"), quote=False).replace("|", "&#124;")
    marked = re.sub(r"([*`\\~])", lambda match: f"&#{ord(match[1])};", escaped)
    return f"<code>{marked.replace(chr(10), '<br>')}</code>" if sample else ""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
