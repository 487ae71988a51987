"""What a person sees: previews that stay small, drawings that are well-formed and show what they were given."""

import base64
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.metadata import (
    PREVIEW_CHARACTERS,
    PREVIEW_ROWS,
    ChartRow,
    bar_chart,
    counts,
    heat_map,
    line_chart,
    matrix,
    plot,
    preview,
    row_chart,
)

SVG = "{http://www.w3.org/2000/svg}"
# characters that nobody sees are drawn as their codes: escaping/test_languages.py
names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Cs", "Cn", "Zl", "Zp")), max_size=12)
numbers = st.floats(-1e6, 1e6)


def drawn(svg: str) -> ElementTree.Element:
    """The drawing, parsed strictly; every coordinate in it is a number."""
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    for element in root.iter():
        for attribute in ("x", "y", "width", "height"):
            value = element.get(attribute)
            assert value is None or value.endswith("%") or abs(float(value)) < 1e5, (element.tag, attribute, value)
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


# --- previews --------------------------------------------------------------------------------------------------------


def test_a_preview_is_capped_in_rows_and_characters():
    frame = pl.DataFrame({"id": range(10_000), "code": ["x" * 100_000] * 10_000})
    shown = preview(frame)
    assert len(shown.records) == PREVIEW_ROWS
    for record in shown.records:
        assert len(record.data["code"]) == PREVIEW_CHARACTERS and record.data["code"].endswith("…")
    assert [record.data["id"] for record in shown.records] == list(range(PREVIEW_ROWS))


def test_lists_are_capped_too():
    frame = pl.DataFrame({"ids": [[f"execution-{i}" for i in range(1_000)]]})
    (record,) = preview(frame).records
    assert len(record.data["ids"]) == PREVIEW_CHARACTERS


def test_text_that_just_fits_is_left_as_it_is():
    fits, longer = "y" * PREVIEW_CHARACTERS, "y" * (PREVIEW_CHARACTERS + 1)
    (first, second) = preview(pl.DataFrame({"t": [fits, longer]})).records
    assert first.data["t"] == fits and second.data["t"] == longer[: PREVIEW_CHARACTERS - 1] + "…"


def test_values_keep_their_kind_and_columns_their_type():
    row: dict[str, Any] = {"n": 1, "f": 0.5, "b": True, "none": None, "t": datetime(2026, 1, 2, tzinfo=UTC)}
    shown = preview(pl.DataFrame([row]))
    data = shown.records[0].data
    assert data == {"n": 1, "f": 0.5, "b": True, "none": None, "t": "2026-01-02T00:00:00+00:00"}
    assert [(c.name, c.type) for c in shown.schema.columns][:3] == [("n", "Int64"), ("f", "Float64"), ("b", "Boolean")]


def test_columns_are_chosen_in_the_order_asked_and_unknown_ones_skipped():
    shown = preview(pl.DataFrame({"a": [1], "b": [2], "c": [3]}), ["c", "absent", "a"])
    assert [column.name for column in shown.schema.columns] == ["c", "a"]


def test_an_empty_table_shows_its_columns():
    shown = preview(pl.DataFrame(schema={"a": pl.String}))
    assert shown.records == [] and [column.name for column in shown.schema.columns] == ["a"]


# --- tables of numbers -----------------------------------------------------------------------------------------------


def test_counts_are_largest_first_then_by_name():
    lines = (counts({"b": 2, "a": 2, "c": 1_000}).md_str or "").splitlines()
    assert lines[2:] == ["| c | 1,000 |", "| a | 2 |", "| b | 2 |"]
    assert counts({}).md_str == "none"


def test_a_matrix_shows_gaps():
    lines = (matrix(["r"], ["c", "d"], {("r", "d"): 0.12345}, corner="v \\ c").md_str or "").splitlines()
    assert lines == ["| v \\\\ c | c | d |", "| --- | ---: | ---: |", "| r | – | 0.123 |"]


# --- drawings --------------------------------------------------------------------------------------------------------


def test_a_plot_carries_its_drawing_along():
    svg = bar_chart({"α & β": 1.0}, "loss")
    prefix, encoded = (plot(svg).md_str or "").rstrip(")").split("base64,")
    assert prefix == "![plot](data:image/svg+xml;" and base64.b64decode(encoded).decode() == svg


@given(
    series=st.dictionaries(names, st.lists(st.tuples(numbers, numbers), max_size=5), max_size=10),
    x_label=names,
    y_label=names,
)
def test_any_line_chart_is_well_formed(series: dict[str, list[tuple[float, float]]], x_label: str, y_label: str):
    root = drawn(line_chart(series, x_label, y_label))
    assert x_label in texts(root) and y_label in texts(root)
    if any(series.values()):
        assert len(list(root.iter(f"{SVG}polyline"))) == len(series)
        assert set(series) <= set(texts(root))


def test_a_line_runs_from_the_lower_left_to_the_upper_right():
    root = drawn(line_chart({"up": [(0, 1.0), (5, 2.0), (10, 3.0)]}, "step", "loss"))
    (line,) = root.iter(f"{SVG}polyline")
    (x0, y0), (x1, y1), (x2, y2) = ([float(v) for v in pair.split(",")] for pair in line.get("points", "").split())
    assert x0 < x1 < x2 and y0 > y1 > y2  # SVG counts downwards
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1) and y1 == pytest.approx((y0 + y2) / 2, abs=0.1)


@given(values=st.dictionaries(names, st.floats(-10, 1e6), max_size=12), label=names)
def test_any_bar_chart_is_well_formed(values: dict[str, float], label: str):
    root = drawn(bar_chart(values, label))
    assert set(values) <= set(texts(root)) and label in texts(root)
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    assert len(bars) == len(values)
    assert all(float(bar.get("height", "-1")) >= 0 for bar in bars)


def test_bars_are_as_high_as_their_values():
    root = drawn(bar_chart({"a": 4.0, "b": 1.0, "c": 0.0}, "n"))
    heights = [float(r.get("height", "0")) for r in root.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
    assert heights[1] == pytest.approx(heights[0] / 4, abs=0.2) and heights[2] == 0


def framed(root: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(r.get("x", "0")), float(r.get("y", "0"))) for r in root.iter(f"{SVG}rect") if r.get("stroke")]


def test_the_heat_map_marks_the_best_of_each_column():
    rows, columns = ["python", "sql", "ml"], ["python", "sql"]
    losses = {("python", "python"): 1.0, ("sql", "python"): 2.0, ("ml", "python"): 3.0}
    losses |= {("python", "sql"): 2.5, ("sql", "sql"): 0.5}
    root = drawn(heat_map(rows, columns, losses))
    first, second = framed(root)
    assert first[0] < second[0] and first[1] < second[1]  # python under python, sql (a row lower) under sql
    assert len(list(root.iter(f"{SVG}rect"))) == 1 + len(losses)  # the ground and one per known value
    assert [text for text in texts(root) if "." in text] == ["1.000", "2.000", "3.000", "2.500", "0.500"]
    assert [text for text in texts(root) if "." not in text] == ["python", "sql", *rows]


def test_the_worse_a_cell_the_redder():
    root = drawn(heat_map(["a", "b", "c"], ["x"], {("a", "x"): 1.0, ("b", "x"): 2.0, ("c", "x"): 3.0}))
    fills = [r.get("fill", "") for r in root.iter(f"{SVG}rect")][1:]
    colours = [tuple(int(part) for part in fill[4:-1].split(",")) for fill in fills]
    assert colours[0][0] < colours[1][0] < colours[2][0] and colours[0][1] > colours[1][1] > colours[2][1]
    assert all(0 <= part <= 255 for colour in colours for part in colour)


@given(
    rows=st.lists(names, max_size=4, unique=True),
    columns=st.lists(names, max_size=4, unique=True),
    values=st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 3)), numbers, max_size=16),
)
def test_any_heat_map_is_well_formed(rows: list[str], columns: list[str], values: dict[tuple[int, int], float]):
    known = {(rows[i], columns[j]): v for (i, j), v in values.items() if i < len(rows) and j < len(columns)}
    root = drawn(heat_map(rows, columns, known))
    assert set(rows) | set(columns) <= set(texts(root))
    marked = {x for x, _ in framed(root)}
    assert len(marked) == len({column for _, column in known})  # in each column that has a value


def test_changes_are_coloured_around_zero_on_one_scale():
    changes = {("a", "a"): -0.4, ("a", "b"): 0.2, ("b", "a"): 0.0, ("b", "b"): 0.4}
    root = drawn(heat_map(["a", "b"], ["a", "b"], changes, "change of loss", around_zero=True))
    fills = [r.get("fill") for r in root.iter(f"{SVG}rect")][1:]
    assert fills == ["rgb(130,200,145)", "rgb(255,255,255)", "rgb(247,198,192)", "rgb(239,140,130)"]  # by column
    assert "change of loss" in texts(root) and {"-0.400", "+0.200", "+0.000", "+0.400"} <= set(texts(root))
    assert not framed(root)


def test_rows_are_bars_from_zero_or_dots_from_the_least():
    rows = [ChartRow("a", 2.0), ChartRow("b", 1.0), ChartRow("c", None, note="absent"), ChartRow("d", float("nan"))]
    bars = [float(r.get("width", "0")) for r in drawn(row_chart(rows, "t", bars=True)).iter(f"{SVG}rect")
            if r.get("height") == "12"]  # fmt: skip
    assert bars[0] == pytest.approx(2 * bars[1], abs=0.2) and len(bars) == 2
    root = drawn(row_chart([*rows, ChartRow("e", 50.0)], "t", bars=False, most=2.0))
    dots = [float(c.get("cx", "0")) for c in root.iter(f"{SVG}circle")]
    assert len(dots) == 2 and dots[0] > dots[1]  # what is beyond the axis has an arrow
    assert {"absent", "nan", "50"} <= set(texts(root))


@given(st.lists(st.tuples(names, st.none() | st.floats()), max_size=40), st.booleans())
def test_any_row_chart_is_well_formed(values: list[tuple[str, float | None]], bars: bool):
    drawn(row_chart([ChartRow(name, value) for name, value in values], "t", bars=bars))


def test_text_that_xml_cannot_write_is_a_code():
    assert "a\\u0000b" in texts(drawn(row_chart([ChartRow("a\x00b", 1.0)], "t", bars=True)))
