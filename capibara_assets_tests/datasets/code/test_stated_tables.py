"""Tables that a task lists in prose, and lines by which nobody waits."""

import pytest

from capibara_assets.datasets.code.stated_tables import stated_tables, without_tables


def test_tables_of_lines_that_hold_nothing_else() -> None:
    text = (
        "How many?\nTables: films(id, name TEXT), halls(id INTEGER PRIMARY KEY, opened DATE)\nf(x) is no table of it."
    )
    assert stated_tables(text) == {
        "films": {"id": None, "name": "text"},
        "halls": {"id": "number", "opened": "date"},
    }
    assert without_tables(text) == "How many?\n\nf(x) is no table of it."


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "line",
    ["a(b) " * 1500 + "!", "a(b)" + " " * 3000 + "x", "a(b int " + "UNIQUE " * 1500 + "(", "x(a, b int), " * 600 + "?"],
    ids=["tables", "blanks", "words", "commas"],
)
def test_a_hostile_line_takes_no_time(line: str) -> None:
    assert stated_tables(line) == {} and without_tables(line) == line.strip()
