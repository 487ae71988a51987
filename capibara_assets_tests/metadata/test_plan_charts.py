"""Plots of a plan: figures where they belong, nothing written over anything else, small enough for an event."""

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest

from capibara_assets.metadata.drawing import width_of
from capibara_assets.metadata.plan_charts import (
    FrontPoint,
    MemoryBar,
    RooflinePoint,
    figures_table,
    front_chart,
    memory_chart,
    reasons_table,
    roofline_chart,
)

GIB = 1024**3
POINTS = [
    RooflinePoint("data 1 x fsdp 64 x tensor 1, remat full, 4 sequences a chip", 420, 118, 104, 131, chosen=True),
    RooflinePoint("data 1 x fsdp 32 x tensor 2, remat minimal", 300, 101, 90, 113),
    RooflinePoint("data 64", 55, 30, 20, 35),
]
BARS = [
    MemoryBar("ours", {"weights": 1.2 * GIB, "optimizer": 2.4 * GIB, "activations": 5 * GIB, "logits": 0.8 * GIB}),
    MemoryBar("XLA", {"arguments": 3.6 * GIB, "temporaries": 7.1 * GIB}, total=11 * GIB),
]
FRONT = [
    FrontPoint("fsdp 64, remat full, 4 a chip", 11 * GIB, 1.9, chosen=True),
    FrontPoint("fsdp 64, remat full, 2 a chip", 7 * GIB, 2.2),
    *(FrontPoint(f"other {index}", (6 + 0.4 * index) * GIB, 2.5 + 0.1 * index) for index in range(60)),
]
CHARTS = {
    "roofline": roofline_chart(POINTS, 197, 819, "tpu-v5e-64"),
    "roofline of a memory-bound plan": roofline_chart(POINTS[2:], 989, 3350, "h100-8"),
    "memory": memory_chart(BARS, {"usable": 15.75 * GIB, "budget": 14.17 * GIB}, "one chip"),
    "memory far under its limits": memory_chart(BARS[:1], {"usable": 150 * GIB, "budget": 135 * GIB}, "one chip"),
    "memory over its limits": memory_chart(BARS[:1], {"usable": 4 * GIB, "budget": 3.6 * GIB}, "one chip"),
    "front": front_chart(FRONT, "settings", limit=14.17 * GIB),
    "front of one": front_chart(FRONT[:1], "settings", limit=14.17 * GIB),
    "front of none": front_chart([], "settings"),
}
SVG = "{http://www.w3.org/2000/svg}"


def boxes(chart: str) -> list[tuple[str, float, float, float, float]]:
    """Words of the chart outside groups, and where they are: left, right, top, bottom."""
    root, found = ElementTree.fromstring(chart), []
    for one in root.findall(f"{SVG}text[@x]"):  # the others are turned, beside an axis
        size, words = float(one.get("font-size", root.attrib["font-size"])), one.text or ""
        x, y, wide = float(one.attrib["x"]), float(one.attrib["y"]), width_of(words, size)
        left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[one.get("text-anchor", "start")]
        found.append((words, left, left + wide, y - 0.75 * size, y + 0.2 * size))
    return found


@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_no_words_stand_on_others_or_leave_the_chart(chart: str) -> None:
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', chart)
    assert size is not None
    wide, high = float(size[1]), float(size[2])
    # Numbers in dots belong to their dots, which may lie side by side.
    words = [box for box in boxes(chart) if not re.fullmatch(r"\d{1,2}", box[0])]
    assert words
    for name, left, right, top, bottom in words:
        assert left >= 0 and right <= wide and top >= 0 and bottom <= high, name
    for one, other in combinations(words, 2):
        apart = one[2] <= other[1] or other[2] <= one[1] or one[4] <= other[3] or other[4] <= one[3]
        assert apart, f"{one[0]!r} stands on {other[0]!r}"


@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_a_chart_is_small_and_the_same_each_time(chart: str) -> None:
    assert len(chart) < 16_384


def test_figures_are_on_the_charts() -> None:
    assert "118 TFLOP/s [104, 131]" in CHARTS["roofline"] and "peak 197 TFLOP/s" in CHARTS["roofline"]
    assert "241 FLOP/byte" in CHARTS["roofline"]  # 197e12 / 819e9
    assert "weights 1.20 GiB" in CHARTS["memory"] and "budget 14.17 GiB" in CHARTS["memory"]
    assert "11.00 GiB" in CHARTS["memory"]
    assert "and 50 more" in CHARTS["front"]
    assert "no setting fits" in CHARTS["front of none"]


def test_points_that_no_logarithm_has_are_left_out() -> None:
    odd = [RooflinePoint("nothing", 0.0, 1.0, 1.0, 1.0), RooflinePoint("infinite", 1.0, 1.0, 1.0, float("inf"))]
    assert "nothing" not in roofline_chart([*odd, POINTS[0]], 197, 819, "t")


def test_a_bars_length_is_its_share() -> None:
    chart = memory_chart([MemoryBar("ours", {"a": 1 * GIB, "b": 3 * GIB})], {}, "t")
    first, second = (
        float(wide) for wide in re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="([\d.]+)" height="20"', chart)
    )
    assert second == pytest.approx(3 * first, rel=0.01)


def test_parts_that_are_not_there_at_once_are_marked_at_their_total() -> None:
    chart = memory_chart([MemoryBar("ours", {"a": 3 * GIB, "b": 2 * GIB, "reused": -1 * GIB}, 4 * GIB)], {}, "t")
    assert "4.00 GiB at once" in chart and ">4.00 GiB<" in chart and "reused" not in chart


def test_tables_are_markdown_and_hold_no_markup_of_their_own() -> None:
    table = reasons_table({"rank": 8, "rate": 1.23456e-4, "mesh": {"data": 1, "fsdp": 4}}, {"rank": "a | b", "x": "y"})
    assert "| rank | 8 | a \\| b |" in table
    assert "| rate | 0.0001235 |  |" in table
    assert "| mesh | data 1, fsdp 4 |  |" in table
    assert "| x |  | y |" in table
    assert "XLA's" in figures_table([("peak", "1", "2")])
