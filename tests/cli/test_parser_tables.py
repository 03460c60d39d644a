from pathlib import Path

import pytest

from vllm_mlx_core.cli import parser_tables

PAGE = Path(__file__).parents[2] / "docs" / "parsers.md"


def test_the_tables_in_the_documentation_are_what_the_parsers_say():
    text = PAGE.read_text(encoding="utf-8")
    assert text == parser_tables.fill_in(text), (
        "the tables of parsers are stale: run python -m vllm_mlx_core.cli.parser_tables"
    )


@pytest.mark.parametrize("kind", parser_tables.KINDS)
def test_every_parser_fills_its_row(kind):
    header, _, *rows = parser_tables.table(kind).splitlines()
    columns = [name.strip() for name in header.strip("|").split("|")]
    assert rows
    for row in rows:
        cells = dict(zip(columns, (cell.strip() for cell in row.strip("|").split("|")), strict=True))
        assert all(cells[name] for name in columns if name != "also called"), row


def test_a_page_is_written_in_place(tmp_path):
    places = [f"{parser_tables.BEGIN}\nstale\n{parser_tables.END}".format(kind=kind) for kind in parser_tables.KINDS]
    page = tmp_path / "page.md"
    page.write_text("\n".join(("before", *places, "after\n")))
    assert parser_tables.main([str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "| `hermes` | `nous`, `qwen`, `qwen3` |" in text
    assert "| `qwen3` | `think` |" in text
    assert "stale" not in text


def test_a_page_without_a_place_for_the_tables_is_refused():
    with pytest.raises(ValueError, match="no place for a table"):
        parser_tables.fill_in("nothing")
