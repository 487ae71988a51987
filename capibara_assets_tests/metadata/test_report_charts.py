"""Drawings of a run's report: intervals on one axis, the flow of data, the steps over the time of a run."""

import re
from xml.etree import ElementTree

import pytest

from capibara_assets.metadata.report_charts import (
    Bar,
    Stage,
    Stream,
    Whisker,
    clock,
    common_ends,
    flow,
    gantt,
    ticks,
    whisker,
)

NAN = float("nan")


def test_an_axis_has_a_place_for_zero_and_every_interval():
    assert common_ends([Whisker(0.1, 0.2, 0.3), Whisker(-0.2, 0.0, 0.1), Whisker(NAN, 9.0, 9.0)]) == (-0.2, 0.3)
    assert common_ends([Whisker(0.1, 0.2, 0.3)]) == (0.0, 0.3)
    assert common_ends([]) == (0.0, 0.0)


def test_a_dot_lies_in_its_interval_and_the_same_value_at_the_same_place():
    ends = (-0.1, 0.4)
    drawn = [ElementTree.fromstring(whisker(Whisker(low, 0.2, 0.3), ends, "good")) for low in (0.1, -0.1)]
    dots = [float(one.find("circle").get("cx")) for one in drawn]  # type: ignore[union-attr, arg-type]
    lines = [one.findall("path")[1].get("d") or "" for one in drawn]
    (low, high), (lower, _) = ([float(x) for x in re.findall(r"[MH]([\d.]+)", line)[:2]] for line in lines)
    assert dots[0] == dots[1] and lower < low < dots[0] < high
    assert "+20.0%, interval +10.0% to +30.0%" in "".join(drawn[0].itertext())
    assert whisker(Whisker(NAN, 0.2, 0.3), ends, "good") == ""


def test_a_flow_keeps_its_proportions_and_names_what_leaves_it():
    stages = [
        Stage("read", {"records": 100}),
        Stage("are", {"executions": 80, "<quarantined>": 20}, frozenset({"<quarantined>"})),
        Stage("of", {"python": 60, "sql": 40}),  # twenty are of both
    ]
    streams = [Stream(0, "records", "executions", 80), Stream(0, "records", "<quarantined>", 20)]
    streams += [Stream(1, "executions", "python", 60), Stream(1, "executions", "sql", 40), Stream(1, "gone", "sql", 1)]
    root = ElementTree.fromstring(flow(stages, streams))
    heights = [float(box.get("height", "0")) for box in root.findall("rect")]
    assert [round(one / heights[0], 2) for one in heights] == [1.0, 0.8, 0.2, 0.6, 0.4]
    assert len(root.findall("path")) == 4
    assert "<quarantined> 20" in "".join(root.itertext())
    # What is in two domains leaves its box twice, and the bands stay within it
    executions, out = root.findall("rect")[1], [path.get("d") or "" for path in root.findall("path")[2:]]
    bottom = float(executions.get("y", "0")) + float(executions.get("height", "0"))
    ends = [float(re.findall(r" ([\d.]+)z", one)[0]) for one in out]
    assert ends[0] < ends[1] == pytest.approx(bottom, abs=0.2)


def test_nothing_read_is_no_flow():
    assert flow([Stage("read", {}), Stage("are", {})], []) == "" == flow([], [])


def test_a_step_lies_where_it_began_and_a_short_one_can_be_seen():
    bars = [
        Bar("python", "a", "training", 0.0, 50.0),
        Bar("python", "<b>", "x", 50.0, 0.0),
        Bar("sql", "c", "", 25.0, 25.0),
    ]
    root = ElementTree.fromstring(gantt(bars, ["experience", "training"], 100.0))
    boxes = [(one.get("class"), float(one.get("x", "0")), float(one.get("width", "0"))) for one in root.findall("rect")]
    (look, start, wide), (_, next_start, short), (_, middle, half) = boxes
    assert look == "g1" and start + wide == pytest.approx(next_start, abs=0.1) and short == 0.5
    assert middle == pytest.approx(start + wide / 2, abs=0.1) and half == pytest.approx(wide / 2, abs=0.1)
    assert "<b>: 0 s" in "".join(root.itertext())
    assert gantt([], [], 10.0) == "" == gantt(bars, [], 0.0)


@pytest.mark.parametrize("seconds", [0.5, 1, 7, 59, 61, 750, 3599, 40_000, 400_000])
def test_ticks_are_few_and_within_the_run(seconds: float):
    found = ticks(seconds)
    assert found[0] == 0 and found[-1] <= seconds and len(found) <= 8


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (1.25, "1.2 s"), (42.4, "42 s"), (59.6, "1:00 min"), (725, "12:05 min"), (12_000, "3:20 h")],
)
def test_times_are_read_as_people_do(seconds: float, words: str):
    assert clock(seconds) == words
