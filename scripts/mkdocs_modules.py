"""mkdocs hook: writes one line per module, from its docstring, in place of ``<!-- modules -->``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MARKER = "<!-- modules -->"
KINDS = ("parsers", "models", "caches", "protocols")
SOURCES = ("vllm_mlx_core", *(f"plugins/{kind}/vllm_mlx_{kind}" for kind in KINDS))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the list, where a page has the marker."""
    return markdown.replace(MARKER, "\n".join(module_list())) if MARKER in markdown else markdown


def module_list() -> Iterator[str]:
    """Yield Markdown lines: a heading for each package, and under it what each of its modules is."""
    for source in SOURCES:
        for package in sorted({file.parent for file in (ROOT / source).rglob("*.py")}):
            yield f"\n### `{package.relative_to(ROOT)}`\n"
            for file in sorted(package.glob("*.py")):
                yield f"- `{file.name}`: {summary(file)}"


def summary(file: Path) -> str:
    """Return the first sentence of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return paragraph.replace("``", "`")
