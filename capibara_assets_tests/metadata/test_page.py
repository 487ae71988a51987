"""An asset's page: the order of its parts, the verdict in words, and the number beside the one before."""

import math

import pytest

from capibara_assets.metadata.page import INLINE, AssetPage, KeyFigure, Level, PageVerdict
from capibara_assets.metadata.training_entries import training_verdict


def test_the_parts_come_in_the_order_in_which_a_person_asks():
    page = AssetPage(
        PageVerdict("good", "well"),
        KeyFigure("loss", 1.0, "less"),
        records={"plan": 1},
        cost={"dollars": 2},
        contents={"table": 3},
        pictures={"curve": 4},
    )
    shown = page.entries({"loss": 2.0}, {"seconds": 5}, {"digest": 6})
    assert list(shown) == ["verdict", "compared", "loss", "curve", "table", "seconds", "dollars", "plan", "digest"]


def test_a_pages_own_seconds_replace_the_steps():
    assert (
        AssetPage(PageVerdict("good", "well"), cost={"seconds": 9.0}).entries(cost={"seconds": 1.0})["seconds"] == 9.0
    )


@pytest.mark.parametrize(
    ("value", "better", "before", "words"),
    [
        (1.5, "less", {"x": 2.0}, "x 1.5, before 2 (-0.5: better)"),
        (2.5, "less", {"x": 2.0}, "x 2.5, before 2 (+0.5: worse)"),
        (1500, "more", {"x": 1000}, "x 1,500, before 1,000 (+500: better)"),
        (5, "", {"x": 2}, "x 5, before 2 (+3)"),
        (5, "more", {"x": 5}, "x 5, before 5 (as before)"),
        (5, "more", {}, "x 5; there is none before to compare with"),
        (5, "more", {"x": "five"}, "x 5; there is none before to compare with"),
    ],
)
def test_a_number_stands_beside_the_one_before(value: float, better: str, before: dict[str, object], words: str):
    assert KeyFigure("x", value, better).compared(before) == words  # type: ignore[arg-type]


def test_a_number_that_is_none_is_left_to_the_verdict():
    shown = AssetPage(PageVerdict("bad", "loss is nan"), KeyFigure("loss", math.nan)).entries({"loss": 1.0})
    assert list(shown) == ["verdict"]


@pytest.mark.parametrize("level", ["good", "look", "bad"])
def test_a_verdict_is_shown_without_a_click_and_what_is_foreign_is_text(level: Level):
    shown = str(PageVerdict(level, "| <b> [x](javascript:y) " * 50).shown().value)
    assert len(shown) < INLINE and f"**{level}**" in shown
    assert "<b>" not in shown and "\\[x\\]" in shown and " …" in shown and "data:image" in shown
    assert " …" not in str(PageVerdict(level, "short").shown().value)


def voters(*losses: float) -> dict[str, dict[str, float]]:
    return {f"v{i}": {"validation_loss": loss, "base_validation_loss": 2.0} for i, loss in enumerate(losses)}


@pytest.mark.parametrize(
    ("losses", "missing", "level", "words"),
    [
        ((1.0, 1.0, 1.0, 1.0), {}, "good", "4 of 4 voters are better than the base, 3 are needed"),
        ((1.0, 1.0, 1.0, 2.0), {}, "look", "3 of 4 voters are better than the base, 3 are needed; v3 is not better"),
        ((1.0, 1.0, 1.0), {"v3": "killed"}, "look", "3 of 4 voters .*; v3 did not finish: killed"),
        ((1.0, 1.0, math.nan, 3.0), {}, "bad", "2 of 4 .*; v2 is not better .*; v3 is not better"),
    ],
)
def test_a_training_is_judged_by_its_quorum(losses: tuple[float, ...], missing: dict[str, str], level: str, words: str):
    import re

    found = training_verdict({"voters": voters(*losses), "missing": missing, "quorum": 3})
    assert found.level == level and re.match(words, found.words)
