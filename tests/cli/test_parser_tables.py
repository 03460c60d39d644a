from pathlib import Path

import pytest

from vllm_mlx_core.cli import parser_tables

FOLDER = Path(__file__).parents[2] / "docs" / "plugins"


@pytest.mark.parametrize("page", parser_tables.PAGES)
def test_the_table_in_the_documentation_is_what_the_parsers_say(page):
    text = (FOLDER / page).read_text(encoding="utf-8")
    assert text == parser_tables.fill_in(text, parser_tables.PAGES[page]), (
        "the tables of parsers are stale: run python -m vllm_mlx_core.cli.parser_tables"
    )


@pytest.mark.parametrize("kind", ["tool_parsers", "reasoning_parsers"])
def test_every_parser_fills_its_row(kind):
    header, _, *rows = parser_tables.table(kind).splitlines()
    columns = [name.strip() for name in header.strip("|").split("|")]
    assert rows
    for row in rows:
        cells = dict(zip(columns, (cell.strip() for cell in row.strip("|").split("|")), strict=True))
        assert all(cells[name] for name in columns if name != "also called"), row


def test_a_page_is_written_in_place(tmp_path):
    for page in parser_tables.PAGES:
        (tmp_path / page).write_text(f"before\n{parser_tables.BEGIN}\nstale text\n{parser_tables.END}\nafter\n")
    assert parser_tables.main([str(tmp_path)]) == 0
    text = (tmp_path / "tool-parsers.md").read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "| `hermes` | `nous`, `qwen`, `qwen3` |" in text
    assert "stale text" not in text


def test_a_page_without_a_place_for_the_table_is_refused():
    with pytest.raises(ValueError, match="no place for a table"):
        parser_tables.fill_in("nothing", "tool_parsers")
