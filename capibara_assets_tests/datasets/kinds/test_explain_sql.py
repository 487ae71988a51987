import pytest

from capibara_assets.datasets.kinds.explain_sql import query_explanation, result_table
from capibara_assets_tests.datasets.conftest import run

TOWNS = """\
        town  rides  mean
0        Ulm     12   2.5
1       Bonn      7   4.0
2  Bad Ems 2      7  None"""


def explained(code: str, result: str) -> list[str] | None:
    made = query_explanation(run("q", code, language="sql", result_text=result).model_dump())
    return None if made is None else made[1]


def test_a_printed_table_is_read_by_the_ends_of_its_columns() -> None:
    table = result_table(TOWNS)
    assert table is not None and table.names == ["town", "rides", "mean"]
    assert table.column("town") == ["Ulm", "Bonn", "Bad Ems 2"]
    spaced = result_table("   a b  c\n0    1  2", ["a b", "c"])
    assert spaced is not None and spaced.column("a b") == ["1"]


@pytest.mark.parametrize("text", ["no table", "   a\n0  1\n..  ..\n9  2", "   a\n0  1 2 3"])
def test_what_is_no_whole_table_is_not_read(text: str) -> None:
    assert result_table(text) is None


def test_groups_order_limit_and_values() -> None:
    query = "SELECT town, COUNT(*) AS rides, AVG(km) AS mean FROM trips GROUP BY town ORDER BY rides DESC LIMIT 5"
    assert explained(query, TOWNS) == [
        "`GROUP BY` gives one row for each `town`: 3 rows, Ulm, Bonn, Bad Ems 2.",
        "`ORDER BY` puts them by `rides`, from 12 down to 7.",
        "`LIMIT 5` cuts nothing off, since there are only 3.",
        "`mean` is missing in 1 of 3 rows.",
    ]


def test_what_the_rows_do_not_show_is_not_said() -> None:
    query = "SELECT town, rides, mean FROM trips ORDER BY rides LIMIT 3"
    assert explained(query, TOWNS) == [
        "There are 3 rows, the first with `town` Ulm, `rides` 12, `mean` 2.5.",
        "`LIMIT 3` ends the list after 3 rows.",
        "`mean` is missing in 1 of 3 rows.",
    ]


def test_one_row_of_aggregates_and_no_row() -> None:
    assert (
        explained("SELECT COUNT(*) AS n FROM trips WHERE km > 2", "   n\n0  7") is None
    )  # one fact: its text says the rest
    assert explained("SELECT a FROM t WHERE a > 2", "Empty result\nColumns: [a]") is None
    assert explained("SELECT", "   n\n0  7") is None
