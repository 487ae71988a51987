"""The quality score: its parts, its bounds, its independence of order."""

from capibara_assets.executions.quality import LENGTH, NOVELTY, OUTCOME, OUTPUT, PARSE, score_all
from capibara_assets_tests.executions.conftest import executed, recorded

LONG = "def area(r):\n    return 3.14 * r * r\nassert area(1) == 3.14"


def test_the_weights_are_a_mean() -> None:
    assert abs(OUTCOME + OUTPUT + LENGTH + PARSE + NOVELTY - 1) < 1e-12


def test_a_good_execution_scores_one() -> None:
    assert score_all([recorded(LONG)]) == [1.0]


def test_each_part_lowers_the_score() -> None:
    good = recorded(LONG)
    silent = recorded(LONG.replace("assert area(1) == 3.14", "answer = area(1)"))
    short = recorded("print(1)", execution=executed(stdout="1\n"))
    broken = recorded(LONG + " (", execution=executed(error=("SyntaxError", "", "")))
    failed = recorded(LONG.replace("==", "!="), execution=executed(error=("AssertionError", "", "")))
    slow = recorded(LONG + "\nwhile True: pass", execution=None, exception={"name": "TimeoutException"})
    scores = score_all([good, silent, short, broken, failed, slow])
    assert all(0 <= score < scores[0] for score in scores[1:])
    assert min(scores[1], scores[2]) >= 0.6
    assert scores[3] < scores[4]


def test_copies_count_less_by_time_whatever_the_order() -> None:
    copies = [recorded(LONG, execution_id=str(i), timestamp=f"2026-10-05T00:00:0{i}Z") for i in range(3)]
    scores = score_all(copies)
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 3
    assert score_all(copies[::-1]) == scores[::-1]


def test_formatting_makes_no_novelty() -> None:
    copies = [recorded(LONG, execution_id="a"), recorded(LONG + "\n\n", execution_id="b")]
    assert score_all(copies)[1] < 1
