"""The quality score: its parts, its bounds, its independence of order."""

from collections.abc import Callable

from capibara_assets.executions.formats.envelope_reader import Recorded
from capibara_assets.executions.ingest.ingest import Ingest
from capibara_assets.executions.labels.signals import code_facts
from capibara_assets.executions.quality import LENGTH, NOVELTY, OUTCOME, OUTPUT, PARSE, score
from capibara_assets_tests.executions.conftest import envelope, executed, recorded

LONG = "def area(r):\n    return 3.14 * r * r\nassert area(1) == 3.14"


def of(record: Recorded, copy: int = 1) -> float:
    return score(record, code_facts(record.language, record.code), copy)


def test_the_weights_are_a_mean() -> None:
    assert abs(OUTCOME + OUTPUT + LENGTH + PARSE + NOVELTY - 1) < 1e-12


def test_a_good_execution_scores_one() -> None:
    assert of(recorded(LONG)) == 1.0


def test_each_part_lowers_the_score() -> None:
    good = recorded(LONG)
    silent = recorded(LONG.replace("assert area(1) == 3.14", "answer = area(1)"))
    short = recorded("print(1)", execution=executed(stdout="1\n"))
    broken = recorded(LONG + " (", execution=executed(error=("SyntaxError", "", "")))
    failed = recorded(LONG.replace("==", "!="), execution=executed(error=("AssertionError", "", "")))
    slow = recorded(LONG + "\nwhile True: pass", execution=None, exception={"name": "TimeoutException"})
    scores = [of(record) for record in (good, silent, short, broken, failed, slow)]
    assert all(0 <= score < scores[0] for score in scores[1:])
    assert min(scores[1], scores[2]) >= 0.6
    assert scores[3] < scores[4]
    assert of(good, copy=2) == round(1 - NOVELTY / 2, 4)


def test_copies_count_less_by_time_whatever_the_order(ingest_lines: Callable[..., Ingest]) -> None:
    copies = [envelope(LONG, execution_id=str(i), timestamp=f"2026-10-05T00:00:0{i}Z") for i in range(3)]
    scores = ingest_lines(*copies).executions.sort("timestamp")["quality"].to_list()
    assert scores == [of(recorded(LONG), copy) for copy in (1, 2, 3)]
    assert ingest_lines(*copies[::-1]).executions.sort("timestamp")["quality"].to_list() == scores


def test_formatting_makes_no_novelty(ingest_lines: Callable[..., Ingest]) -> None:
    copies = [envelope(LONG, execution_id="a"), envelope(LONG + "\n\n", execution_id="b")]
    assert sorted(ingest_lines(*copies).executions["quality"]) == [of(recorded(LONG), 2), 1.0]
