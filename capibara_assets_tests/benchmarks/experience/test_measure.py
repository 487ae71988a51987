"""The scores themselves, on hand-made answers."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from benchmarks.experience.measure import classifier_scores, read_labels, read_source_domains, repair_scores
from capibara_assets.errors import InputError


def label(execution: str, sandbox: str, source: str, **more: Any) -> dict[str, Any]:
    return {
        "execution_id": execution,
        "sandbox_id": sandbox,
        "source": source,
        "language": "python",
        "outcome": "ok",
    } | more


def test_classifier_scores_by_session_and_family() -> None:
    executions = pl.DataFrame(
        {
            "sandbox_id": ["a", "a", "a", "b", "c", "d"],
            "domains": [["ml"], ["ml", "debug"], ["python"], ["python"], ["sql"], []],
        },
        schema_overrides={"domains": pl.List(pl.String)},
    )
    labels = [label("1", "a", "x"), label("2", "b", "y"), label("3", "c", "z"), label("4", "d", "z")]
    scores = classifier_scores(executions, labels, {"x": "ml", "y": "by language", "z": "sql"}, {"x": "f", "y": "f"})
    assert scores.accuracy_by_source == {"f": 1.0, "z": 0.5}
    assert (scores.worst_source_accuracy, scores.mean_source_accuracy, scores.abstained) == (0.5, 0.75, 1)
    assert scores.macro_f1 == pytest.approx((1 + 1 + 2 / 3) / 3)


def test_repair_scores_complete_the_labels_by_their_roles() -> None:
    labels = [
        label("f1", "a", "x", outcome="error"),
        label("s1", "a", "x", repairs="f1"),
        label("f2", "b", "x", outcome="error"),
        label("s2", "b", "x", repairs="f2"),
        label("f3", "c", "x", outcome="error"),
        label("s3", "c", "x"),
        label("f4", "d", "x", role="bug:operator", problem="p", cell=0),  # a failure that the label calls ok
        label("s4", "d", "x", role="solution", problem="p", cell=1),
        label("f6", "d", "x", role="bug:operator", problem="q", cell=2),
        label("s6", "d", "x", role="solution", problem="q", cell=3),
        label("f7", "f", "x", role="model", problem="r", cell=0),
        label("s7", "f", "x", role="solution", problem="r", cell=1),
        label("f5", "e", "elsewhere", outcome="error"),
        label("s5", "e", "elsewhere"),
    ]
    pairs = [("f1", "s1"), ("f3", "s3"), ("f4", "s4"), ("f5", "s5"), ("f7", "s7")]
    found = pl.DataFrame(pairs, schema=["failing_execution_id", "fixed_execution_id"], orient="row")
    outcomes = [(row["execution_id"], "error" if row["execution_id"][0] == "f" else "ok") for row in labels]
    executions = pl.DataFrame(outcomes, schema=["execution_id", "outcome"], orient="row")
    scores = repair_scores(found, labels, executions)
    assert (scores.pairs, scores.labelled, scores.completed) == (4, 2, 2)
    assert (scores.precision, scores.recall) == (2 / 4, 2 / 4)  # f1, f4 of f1, f2, f4, f6
    assert (scores.labelled_precision, scores.labelled_recall) == (1 / 2, 1 / 2)
    assert scores.strict_precision == 1 / 4


def test_labels_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the labels"):
        read_labels(tmp_path / "gone")
    (tmp_path / "bad").write_text("{")
    with pytest.raises(InputError, match="no JSON lines"):
        read_labels(tmp_path / "bad")


def test_sources_of_another_shape_are_named(tmp_path: Path) -> None:
    (tmp_path / "sources.json").write_text('{"mbpp": {"domain": "python"}}')
    assert read_source_domains(tmp_path / "sources.json") == {"mbpp": "python"}
    for text in ("[]", '{"mbpp": {}}', "{"):
        (tmp_path / "sources.json").write_text(text)
        with pytest.raises(InputError, match="must map each source"):
            read_source_domains(tmp_path / "sources.json")
    with pytest.raises(InputError, match="cannot read the sources"):
        read_source_domains(tmp_path / "gone.json")
