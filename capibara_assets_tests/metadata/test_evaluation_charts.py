"""The report's page: what it was given is on it, hostile answers are text, and nothing is fetched or run."""

import html
import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.escaping.languages import visible
from capibara_assets.evaluation.report import (
    AnsweringCost,
    Comparison,
    EvaluationReport,
    ReportSource,
    ShownAnswer,
    WorstExample,
)
from capibara_assets.evaluation.schema import Interval
from capibara_assets.metadata.evaluation_charts import (
    CalibrationBin,
    IntervalRow,
    calibration_chart,
    confusion_matrix,
    figure,
    interval_chart,
)
from capibara_assets.metadata.evaluation_entries import evaluation_asset_page
from capibara_assets.metadata.evaluation_page import page
from capibara_assets.metadata.tables import ENTRY_BYTES

LOSS = "loss_per_assistant_token"
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    "<script>alert(1)</script>",
    "</pre></details><img src=x onerror=alert(1)>",
    "{{ report.verdict }} {% raw %}",
    "\x1b[2J\x00 \u202eright to left\u200b",
    '"><a href="javascript:alert(1)">here</a>',
    "&lt;script&gt; &amp;",
    "\ud800 lone",
)


def interval(estimate: float, width: float = 0.1) -> Interval:
    return Interval(estimate=estimate, low=estimate - width, high=estimate + width, n=60, groups=17)


def report(**changes: object) -> EvaluationReport:
    tested = interval(0.248).model_copy(update={"p_value": 1e-5, "detectable": 0.06})
    found = EvaluationReport(
        title="python",
        verdict="promote",
        paragraph="In python, the loss falls by 24.8 %.",
        judged="consensus",
        figures={
            "base": {LOSS: interval(2.287), "perplexity": interval(9.847), "pass@1": interval(0.05)},
            "consensus": {LOSS: interval(1.72), "perplexity": interval(5.583), "pass@1": interval(0.25)},
            "voter-0": {LOSS: interval(1.779)},
        },
        comparisons=[Comparison(LOSS, "consensus", "base", tested, 0.0002)],
        usage={"consensus": AnsweringCost(answers=12, tokens=1_200, seconds=0.8, peak_mib=900.0)},
        curves={"voter-0": [(0, 2.8), (35, 1.9)]},
        router={
            "test_accuracy": 0.9386,
            "calibration": [{"confidence": 0.95, "accuracy": 0.9, "count": 40}],
            "confusion": {"python": {"python": 30, "sql": 2}, "sql": {"python": 1, "sql": 20}},
        },
        worst=[
            WorstExample(
                "0a08bc", "solve", "it failed", "Write a function.", "def f(): ...", "assert f() == 3",
                (ShownAnswer("base", 1.2, "print(1)", "passed", ""), ShownAnswer("consensus", None, "", "failed", "")),
            )
        ],
        sources=[ReportSource("moe_dataset[python]", "3f2c", "/assets/moe_dataset?partition=python")],
        settings={"max_new_tokens": 96},
        notes=["2 of 62 examples do not fit"],
    )  # fmt: skip
    return replace(found, **changes)


class Parsed(HTMLParser):
    """Tags, links and text of a page, as a browser reads them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def test_the_page_shows_what_it_was_given():
    text = Parsed(page(report())).text
    for words in (
        "python promote", "In python, the loss falls by 24.8 %.", "1.720", "1.620 – 1.820", "n = 60 in 17 groups",
        "1,500", "900 MiB", "+24.8%", "< 0.001", "6.0%", "Write a function.", "def f(): ...", "assert f() == 3",
        "print(1)", "passed", "(an empty answer)", "1.200 nats per token", "moe_dataset[python]", "3f2c",
        "2 of 62 examples do not fit", "max_new_tokens",
    ):  # fmt: skip
        assert words in text, words


def test_nothing_is_fetched_or_run():
    parsed = Parsed(page(report()))
    assert parsed.links == ["/assets/moe_dataset?partition=python"]
    assert not {"script", "link", "img", "iframe", "object"} & set(parsed.tags) and not parsed.handlers
    assert "default-src 'none'" in html.unescape(page(report()))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_answers_are_text(text: str):
    answers = (ShownAnswer(text, 1.0, text, text, text),)
    worst = (WorstExample(text, text, text, text, text, text, answers),)
    hostile = report(title=text, paragraph=text, worst=worst, notes=[text], settings={text: text}, verdict=text)
    html = page(hostile)
    assert html.encode("utf-8")
    parsed, plain = Parsed(html), Parsed(page(report(worst=(replace(worst[0], answers=answers),))))
    assert set(parsed.tags) <= set(plain.tags) | {"span"} and not parsed.handlers
    assert parsed.links == ["/assets/moe_dataset?partition=python"]
    assert " ".join(visible(text).split()) in parsed.text


@given(st.text(max_size=200))
def test_any_answer_can_be_read_on_the_page(text: str):
    answer = ShownAnswer("base", None, text, "failed", "")
    worst = (WorstExample("i", "solve", "why", "p", "r", "", (answer,)),)
    parsed = Parsed(page(report(worst=worst)))
    assert not {"script", "img"} & set(parsed.tags) and len(parsed.links) == 1
    assert " ".join(visible(text).split()) in parsed.text


def test_the_same_report_gives_the_same_bytes():
    assert page(report()) == page(report())


def test_what_is_absent_is_left_out():
    bare = EvaluationReport("HumanEval.jsonl", "", "", "consensus", {"consensus": {"pass@1": interval(0.5)}})
    text = Parsed(page(bare)).text
    for words in ("router", "worst", "voters learnt", "Made from", "Differences", "tokens/s"):
        assert words not in text


def test_equal_figures_have_no_best_and_worse_ones_are_not_it():
    equal = {name: {"pass@1": interval(0.0)} for name in ("base", "consensus")}
    assert 'class="best"' not in page(report(figures=equal))
    assert page(report()).count('class="best"') == 3


# --- charts ----------------------------------------------------------------------------------------------------------

finite = st.floats(-1e4, 1e4)
rows = st.builds(
    lambda name, middle, low, high: IntervalRow(name, middle, middle - low, middle + high),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn")), max_size=30),
    finite,
    st.floats(0, 100),
    st.floats(0, 100),
)


@given(st.lists(rows, max_size=6), st.none() | finite, st.booleans())
def test_intervals_are_drawn_within_the_picture(drawn: list[IntervalRow], line: float | None, percent: bool):
    root = ElementTree.fromstring(interval_chart(drawn, "title", line=line, percent=percent))
    circles = list(root.iter(f"{SVG}circle"))
    assert len(circles) == len(drawn)
    width = float(root.get("width", "0"))
    assert all(0 <= float(circle.get("cx", "-1")) <= width for circle in circles)


def test_a_figure_that_is_not_finite_has_no_dot():
    root = ElementTree.fromstring(interval_chart([IntervalRow("a", math.nan, 0, 1), IntervalRow("b", 1, 0, 2)], ""))
    assert len(list(root.iter(f"{SVG}circle"))) == 1 and figure(math.inf, True) == "–"


def test_calibration_marks_each_bin_that_has_prompts():
    root = ElementTree.fromstring(
        calibration_chart([CalibrationBin(0.2, 0.1, 5), CalibrationBin(0.9, 1.0, 20), CalibrationBin(0.5, 0.0, 0)], "t")
    )
    circles = [(float(c.get("cx", "0")), float(c.get("cy", "0"))) for c in root.iter(f"{SVG}circle")]
    assert circles == [(54 + 220 * 0.2, 30 + 220 * 0.9), (54 + 220 * 0.9, 30.0)]


def test_a_confusion_matrix_shows_every_count():
    counts = {("python", "python"): 30, ("python", "sql"): 2, ("sql", "sql"): 20}
    root = ElementTree.fromstring(confusion_matrix(["python", "sql"], ["base", "python", "sql"], counts, "t"))
    numbers = [element.text for element in root.iter(f"{SVG}text") if (element.text or "").isdigit()]
    assert numbers == ["0", "30", "2", "0", "0", "20"]


# --- metadata --------------------------------------------------------------------------------------------------------


def test_the_metadata_tell_what_the_page_tells_within_an_events_size():
    entries = evaluation_asset_page(report(), "/store/report/evaluation.html", 5).entries()
    assert set(entries) == {
        "verdict", "compared", "gain_over_base", "why", "test_examples", "report",
        "side_by_side", "differences", "intervals", "intervals_2", "learning_curves",
        "router_calibration", "router_confusion", "worst_examples", "made_from", "notes",
    }  # fmt: skip
    assert "1.720 (1.620 – 1.820)" in str(entries["side_by_side"].value)
    assert "**good**: promote; consensus against the base: +24.8%" in str(entries["verdict"].value)
    assert "of the loss saved" in str(entries["verdict"].value)
    assert "+24.8%" in str(entries["differences"].value)
    assert "(/assets/moe_dataset?partition=python)" in str(entries["made_from"].value)


def test_many_contenders_and_endless_answers_stay_within_an_events_size():
    many = {f"voter-{i}": {LOSS: interval(2.0 + i), "pass@1": interval(0.1)} for i in range(32)}
    long = (ShownAnswer("consensus", 1.0, "x" * 10**6, "failed", "y" * 10**6),)
    worst = [WorstExample(f"i{i}", "solve", "why", "p" * 10**6, "r", "c", long) for i in range(100)]
    compared = [Comparison(LOSS, name, "base", interval(0.1), 0.5) for name in many for _ in range(10)]
    entries = evaluation_asset_page(report(figures=many, worst=worst, comparisons=compared), "page", 5).entries()
    for name, entry in entries.items():
        assert len(str(entry)) < 3 * ENTRY_BYTES, name


def test_a_hostile_answer_is_no_markup_in_the_metadata():
    entries = evaluation_asset_page(report(notes=["| a | <b> [x](javascript:y)"]), "page", 5).entries()
    assert str(entries["notes"].value) == "- \\| a \\| &lt;b> \\[x\\](javascript:y)"
