"""The bench of evaluation: what stands at the top, and which parts there are."""

import pytest

from benchmarks.evaluation.evaluate import PARTS, measure, summary
from capibara_assets.errors import InputError


def test_the_promised_figures_stand_at_the_top() -> None:
    found = summary(
        {
            "generation": {"batched_ratio": 1.5, "ours_s": 1.0},
            "statistics": {"false_positive_rate": 0.05, "power": 0.97},
            "hostile": {"hostile_passed": 0, "programs": 30},
        }
    )
    assert list(found)[:3] == ["batched_ratio", "false_positive_rate", "hostile_passed"]
    assert (found["batched_ratio"], found["false_positive_rate"], found["hostile_passed"]) == (1.5, 0.05, 0)
    assert found["statistics"]["power"] == 0.97 and found["hostile"]["programs"] == 30


def test_a_part_that_was_not_asked_for_is_not_made_up() -> None:
    assert summary({"hostile": {"hostile_passed": 0}}) == {"hostile_passed": 0, "hostile": {"hostile_passed": 0}}


@pytest.mark.parametrize("only", [[], ["speed"], [*PARTS, "speed"]])
def test_an_unknown_part_is_refused_with_those_there_are(only: list[str]) -> None:
    with pytest.raises(InputError, match="generation, statistics, hostile"):
        measure(only)
